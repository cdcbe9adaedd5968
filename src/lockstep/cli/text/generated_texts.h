// What `generate` prints: one text as it grows, or several, each in its turn once it is complete; or a line
// of JSON for each.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/text/model_text.h"
#include "lockstep/cli/text/prompts.h"
#include "lockstep/run/tools/sampler.h"
#include "lockstep/run/tools/transcript.h"

namespace lockstep::cli {

class GeneratedTexts {
 public:
  // Text number i is sample i % samples of prompt i / samples.
  struct Options {
    const ModelText& text;
    const data::Dataset& dataset;
    const std::vector<ModelText::Prompt>& prompts;
    const std::vector<WrittenPrompt>& written;
    int64_t samples = 1, tokens = 0;  // tokens: drawn for a text, at most
    std::vector<std::string> stops;
    bool ignore_eos = false, json = false, shows_prompts = true, logprobs = false;
    nlohmann::json named;  // what every line of JSON says too
  };
  explicit GeneratedTexts(Options options);
  bool add(size_t index, const run::Drawn& drawn);  // false: this text ends here
  void finish();                                    // what was interrupted, too

 private:
  struct Text {
    run::Transcript transcript;
    size_t prompt = 0, prompt_tokens = 0;
    std::vector<double> logprobs;
    int64_t drawn = 0;
    bool stopped = false;  // by an end token or a stop string
    int32_t end_token = -1;
  };
  Text& text_at(size_t index);
  std::vector<int32_t> tokens_of(const Text& text) const;  // with those that are not shown
  void show_more(const Text& text, size_t until);
  bool take(Text& text, const run::Drawn& drawn);
  void print_complete();
  void print_one(size_t index);
  void print_text(size_t index, const Text& text);
  void print_json(size_t index, const Text& text);
  bool streams() const { return !o_.json && o_.prompts.size() * static_cast<size_t>(o_.samples) == 1; }

  Options o_;
  std::vector<std::optional<Text>> texts_;
  std::vector<bool> complete_;
  size_t next_ = 0;     // the text to be printed next
  size_t printed_ = 0;  // bytes of the only text
};

}  // namespace lockstep::cli
