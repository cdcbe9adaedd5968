// From logits to a token: temperature and filters as transformers defines them, then one uniform draw.
//
// A pure function of its arguments: the same logits, options and (seed, sample, n) give the same token. The
// steps, in transformers' order: repetition penalty, temperature, top-k, top-p, min-p. Only the likeliest
// tokens are put in order, as many as the draw or a filter needs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::run {

struct SamplingOptions {
  int64_t tokens = 200;           // how many to draw
  double temperature = 1;         // 0: always the likeliest
  int64_t top_k = 0;              // 0: all
  double top_p = 1;               // the likeliest tokens that together have this probability; 1: all
  double min_p = 0;               // tokens at least so likely, as a share of the likeliest; 0: all
  double repetition_penalty = 1;  // of tokens in the text so far: positive logits are divided by it
  uint64_t seed = 1;              // token n of a text is a function of (seed, sample, n) and the text before
  bool logprobs = false;          // Drawn::logprob is wanted
};

struct Drawn {
  int32_t token = 0;
  double logprob = 0;  // of the model itself: before penalty, temperature and filters
};

class Sampler {
 public:
  explicit Sampler(int64_t vocab);
  // `seen`: the distinct tokens of the text so far; read where there is a penalty. `sample`: which of several
  // texts of one prompt. RunError 619 where logits are not numbers.
  Drawn draw(const float* logits, std::span<const int32_t> seen, const SamplingOptions& options,
             uint64_t sample, uint64_t n);

 private:
  void put_in_order(size_t count);  // the next so many of the likeliest
  int32_t token_at(size_t rank);
  void penalize(std::span<const int32_t> seen, double penalty);
  size_t kept_tokens(const SamplingOptions& options, float top);
  int32_t draw_from_scores(float top, const SamplingOptions& options, uint64_t sample, uint64_t n);

  int64_t vocab_;
  std::vector<float> scores_;
  std::vector<uint64_t> order_;  // score and token as one number, larger: likelier; [0, ordered_) sorted
  size_t ordered_ = 0;
  std::vector<double> weights_;  // of the kept tokens
};

}  // namespace lockstep::run
