// Lines of a file whose texts are scored: questions with choices, and prompts with completions, as
// lm-evaluation-harness asks for their log-likelihoods.
//
//     {"context": "The capital of France is", "choices": ["Rome", "Paris"], "answer": 1}
//     {"question": "2 + 2 =", "choices": ["4", "5"], "answer": "4"}
//     {"prompt": "The dog", "completion": " barks"}
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/cli/text/model_text.h"
#include "lockstep/run/tools/score.h"

namespace lockstep::cli {

struct LikelihoodLine {
  int64_t number = 0;  // in the file
  std::string context;
  std::vector<std::string> choices;  // of a completion: itself
  int64_t answer = -1;               // of a completion: -1
  bool completion() const { return answer < 0; }
};

// Empty lines are passed over. A line that cannot be used: `bad` is told, with file and line.
std::vector<LikelihoodLine> read_likelihoods(const std::string& file,
                                             const std::function<void(const std::string& sentence)>& bad);

struct PairOptions {
  std::string delimiter;  // between context and continuation
  bool add_bos = false;   // the tokenizer's own tokens around a text, such as a first one
};
// Context and continuation in tokens: white space at the end of the context goes to the continuation, the
// whole and the context are encoded, and what the whole has more is scored. Texts longer than the model's
// context lose their beginning. ConfigError 198 where nothing is left to score, or too much.
run::ScoreItem score_item(const ModelText& text, const std::string& context, const std::string& continuation,
                          const PairOptions& options, int64_t longest, const std::string& where);

}  // namespace lockstep::cli
