// Log-likelihoods of given texts, many at once: what evaluation by document and by choices is made of.
//
// Tokens of several texts share a forward pass, each at its own position, so that short texts are as fast as
// long ones and nothing is padded; logits are computed only where a token is scored.
//
//     Scorer scorer(session, {.longest = 300});
//     scorer.run(items, [&](size_t item, const Score& score) { ... });
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/run/tools/decoder.h"

namespace lockstep::run {

// Tokens [first, end) are scored, each given all before it.
struct ScoreItem {
  std::vector<int32_t> tokens;
  int64_t first = 1;  // at least 1
};

struct Score {
  int64_t tokens = 0;  // scored
  double logprob = 0;  // their sum, natural
  bool greedy = true;  // each was the likeliest token
};

class Scorer {
 public:
  // `longest`: tokens of the longest item.
  Scorer(Session& session, int64_t longest);
  // Calls `use` for each item once, in order. False: `stop` was not 0, and the rest was left out.
  bool run(const std::vector<ScoreItem>& items, const std::function<void(size_t item, const Score&)>& use,
           const std::atomic<int>* stop = nullptr);

 private:
  struct Scored {  // a row whose logits are wanted
    size_t item;
    int32_t label;
  };
  struct Pass {
    std::vector<DecodeRow> context, scored;  // rows without and with logits
    std::vector<Scored> labels;              // of `scored`
    size_t texts = 0;
  };
  void compute(Pass& pass, std::vector<Score>& scores);

  Session& session_;
  Decoder decoder_;
  std::vector<DecodeRow> rows_;
  std::vector<int32_t> labels_;
  std::vector<float> losses_;
  std::vector<char> greedy_;
};

}  // namespace lockstep::run
