#include "lockstep/run/tools/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/philox.h"

namespace lockstep::run {

namespace {

// Ordered like the score; among equal scores the smaller token counts as likelier.
uint64_t rank_of(float score, size_t token) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 is 0
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(token));
}

struct Best {
  size_t token = 0;
  bool finite = true;
};

Best likeliest(const std::vector<float>& scores) {
  float top = scores[0];
  int strange = 0;  // NaNs; counted without a branch, so that the loop is short
  for (const float score : scores) {
    strange += score != score ? 1 : 0;
    top = score > top ? score : top;
  }
  if (strange > 0 || !std::isfinite(top)) return {.finite = false};
  return {.token = static_cast<size_t>(std::find(scores.begin(), scores.end(), top) - scores.begin())};
}

double weight_of(float score, float top, double temperature) {
  return std::exp((static_cast<double>(score) - static_cast<double>(top)) / temperature);
}

// Of all tokens, where the likeliest weighs 1. In fp32: a rounding of 1e-7 moves no draw that anyone sees.
double sum_of_weights(const std::vector<float>& scores, float top, double temperature) {
  double sum = 0;
  for (const float score : scores)
    sum += static_cast<double>(std::exp(static_cast<float>(static_cast<double>(score - top) / temperature)));
  return sum;
}

}  // namespace

Sampler::Sampler(int64_t vocab) : vocab_(vocab) {
  scores_.resize(static_cast<size_t>(vocab));
  order_.resize(static_cast<size_t>(vocab));
}

void Sampler::put_in_order(size_t count) {
  const size_t end = std::min(order_.size(), ordered_ + count);
  const auto from = order_.begin() + static_cast<std::ptrdiff_t>(ordered_),
             to = order_.begin() + static_cast<std::ptrdiff_t>(end);
  if (end < order_.size()) std::nth_element(from, to, order_.end(), std::greater<>());
  std::sort(from, to, std::greater<>());
  ordered_ = end;
}

// Twice to four times as many each time: all of a flat distribution costs little more than a sort.
int32_t Sampler::token_at(size_t rank) {
  constexpr size_t kFirst = 64;
  while (rank >= ordered_) put_in_order(std::max(kFirst, 3 * ordered_));
  return static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(order_[rank]));
}

void Sampler::penalize(std::span<const int32_t> seen, double penalty) {
  const auto by = static_cast<float>(penalty);
  for (const int32_t token : seen) {
    if (token < 0 || token >= vocab_) continue;
    float& score = scores_[static_cast<size_t>(token)];
    score = score < 0 ? score * by : score / by;
  }
}

// How many of the likeliest may be drawn; their weights, of which the likeliest has 1, into weights_.
size_t Sampler::kept_tokens(const SamplingOptions& options, float top) {
  const auto weigh = [&](size_t rank) {
    return weight_of(scores_[static_cast<size_t>(token_at(rank))], top, options.temperature);
  };
  const size_t all = order_.size(), k = options.top_k > 0 ? static_cast<size_t>(options.top_k) : all;
  const size_t most = std::min(all, k);
  double enough = 0;  // top-p's share of the k likeliest
  if (options.top_p < 1) {
    if (most == all) enough = sum_of_weights(scores_, top, options.temperature);
    for (size_t i = 0; i < most && most < all; ++i) enough += weigh(i);
    enough *= options.top_p;
  }
  weights_.clear();
  double above = 0;
  for (size_t i = 0; i < most; ++i) {
    const double weight = weigh(i);
    if (i > 0 && (weight < options.min_p || (options.top_p < 1 && above >= enough))) return i;
    weights_.push_back(weight);
    above += weight;
  }
  return most;
}

Drawn Sampler::draw(const float* logits, std::span<const int32_t> seen, const SamplingOptions& options,
                    uint64_t sample, uint64_t n) {
  std::copy(logits, logits + vocab_, scores_.begin());
  Best best = likeliest(scores_);
  if (!best.finite) {
    throw base::RunError(
        619,
        "the model's logits are not finite, so no token can be drawn: its weights are not finite, or values "
        "overflow in precision.compute; use an older checkpoint, or precision.compute=fp32");
  }
  double whole = 0;
  if (options.logprobs) {
    const float top = scores_[best.token];
    whole = static_cast<double>(top) + std::log(sum_of_weights(scores_, top, 1));
  }
  if (options.repetition_penalty != 1) {
    penalize(seen, options.repetition_penalty);
    best = likeliest(scores_);
  }
  const bool greedy = options.temperature <= 0 || options.top_k == 1;
  const int32_t token =
      greedy ? static_cast<int32_t>(best.token) : draw_from_scores(scores_[best.token], options, sample, n);
  return {token, options.logprobs ? static_cast<double>(logits[token]) - whole : 0};
}

int32_t Sampler::draw_from_scores(float top, const SamplingOptions& options, uint64_t sample, uint64_t n) {
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = rank_of(scores_[i], i);
  ordered_ = 0;
  const bool all = options.top_k <= 0 && options.top_p >= 1 && options.min_p <= 0;
  const size_t kept = all ? order_.size() : kept_tokens(options, top);
  const double total = all ? sum_of_weights(scores_, top, options.temperature)
                           : std::accumulate(weights_.begin(), weights_.end(), 0.0);
  const base::Random4 random = base::philox(base::mix64(options.seed), n, 0x67656E + (sample << 32));
  double left = (static_cast<double>(random.x) + 0.5) / 4294967296.0 * total;
  for (size_t i = 0; i < kept; ++i) {
    const int32_t token = token_at(i);
    left -= all ? weight_of(scores_[static_cast<size_t>(token)], top, options.temperature) : weights_[i];
    if (left <= 0) return token;
  }
  return token_at(kept - 1);
}

}  // namespace lockstep::run
