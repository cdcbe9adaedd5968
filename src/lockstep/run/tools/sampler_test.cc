// Drawing against a plain implementation: everything sorted, everything in fp64.
#include "lockstep/run/tools/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/base/philox.h"

namespace lockstep::run {
namespace {

// As transformers' processors do it, one after the other, on all tokens.
struct Plain {
  std::vector<double> scores;
  explicit Plain(const std::vector<float>& logits) : scores(logits.begin(), logits.end()) {}

  std::vector<size_t> order() const {
    std::vector<size_t> all(scores.size());
    std::iota(all.begin(), all.end(), size_t{0});
    std::stable_sort(all.begin(), all.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    return all;
  }
  std::vector<double> chances() const {
    const double top = *std::max_element(scores.begin(), scores.end());
    std::vector<double> p;
    for (const double score : scores) p.push_back(std::exp(score - top));
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& one : p) one /= sum;
    return p;
  }
  void drop(size_t token) { scores[token] = -INFINITY; }

  void apply(const SamplingOptions& o, const std::vector<int32_t>& text) {
    std::vector<bool> done(scores.size(), false);
    for (const int32_t token : text) {
      double& score = scores[static_cast<size_t>(token)];
      if (!done[static_cast<size_t>(token)])
        score = score < 0 ? score * o.repetition_penalty : score / o.repetition_penalty;
      done[static_cast<size_t>(token)] = true;
    }
    for (double& score : scores) score /= o.temperature;
    const std::vector<size_t> ranked = order();
    if (o.top_k > 0)
      for (size_t i = static_cast<size_t>(o.top_k); i < ranked.size(); ++i) drop(ranked[i]);
    std::vector<double> p = chances();
    double above = 0;
    for (size_t i = 0; i < ranked.size(); ++i) {
      if (i > 0 && above >= o.top_p) drop(ranked[i]);
      above += p[ranked[i]];
    }
    p = chances();
    const double best = *std::max_element(p.begin(), p.end());
    for (size_t i = 0; i < p.size(); ++i)
      if (p[i] < o.min_p * best) drop(i);
  }
};

struct Row {
  double temperature, top_p, min_p, penalty;
  int64_t top_k;
};
const Row kRows[] = {{1, 1, 0, 1, 0},           {0.7, 0.9, 0, 1, 0},  {1.3, 1, 0.1, 1, 0}, {1, 1, 0, 1.3, 0},
                     {0.8, 0.5, 0.05, 1.2, 40}, {2, 0.99, 0, 0.8, 7}, {1, 0.01, 0, 1, 0},  {1, 1, 1, 1, 0},
                     {0.01, 0.9, 0, 1, 0},      {50, 0.6, 0, 1, 0},   {1, 1, 0, 1, 1}};

TEST(Sampler, DrawsWhatAPlainImplementationDraws) {
  const uint32_t seed = std::random_device{}();
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 3);
  int checked = 0;
  for (const Row& row : kRows) {
    for (int round = 0; round < 60; ++round) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " round " << round << " top_p " << row.top_p);
      std::vector<float> logits(static_cast<size_t>(round % 3 == 0 ? 5 : 700));
      for (float& logit : logits) logit = normal(generator);
      std::vector<int32_t> text;
      for (int i = 0; i < 20; ++i) text.push_back(static_cast<int32_t>(generator() % logits.size()));
      const SamplingOptions options{.temperature = row.temperature,
                                    .top_k = row.top_k,
                                    .top_p = row.top_p,
                                    .min_p = row.min_p,
                                    .repetition_penalty = row.penalty,
                                    .seed = generator()};
      Plain plain(logits);
      plain.apply(options, text);
      std::sort(text.begin(), text.end());
      text.erase(std::unique(text.begin(), text.end()), text.end());
      Sampler sampler(static_cast<int64_t>(logits.size()));
      const auto n = static_cast<uint64_t>(round);
      const Drawn drawn = sampler.draw(logits.data(), text, options, 3, n);
      const base::Random4 random = base::philox(base::mix64(options.seed), n, 0x67656E + (uint64_t{3} << 32));
      const double u = (static_cast<double>(random.x) + 0.5) / 4294967296.0;
      const std::vector<double> p = plain.chances();
      double below = 0;
      for (const size_t token : plain.order()) {
        if (std::fabs(u - below) < 1e-5 || std::fabs(u - below - p[token]) < 1e-5) break;  // rounding decides
        below += p[token];
        if (u >= below) continue;
        EXPECT_EQ(drawn.token, static_cast<int32_t>(token));
        ++checked;
        break;
      }
    }
  }
  EXPECT_GT(checked, 500);
}

TEST(Sampler, FrequenciesAreTheChances) {
  const std::vector<float> logits = {1, 0, -1, 3, 2, 0.5f, -4, 2.5f};
  const SamplingOptions base{.temperature = 0.9, .top_p = 0.93, .min_p = 0.03};
  Plain plain(logits);
  plain.apply(base, {});
  const std::vector<double> p = plain.chances();
  std::vector<double> counts(p.size(), 0);
  Sampler sampler(static_cast<int64_t>(logits.size()));
  constexpr int kDraws = 20000;
  for (uint64_t n = 0; n < kDraws; ++n)
    ++counts[static_cast<size_t>(sampler.draw(logits.data(), {}, base, 0, n).token)];
  for (size_t i = 0; i < p.size(); ++i) {
    const double sigma = std::sqrt(p[i] * (1 - p[i]) / kDraws);
    EXPECT_NEAR(counts[i] / kDraws, p[i], 5 * sigma) << i;
  }
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  const std::vector<float> logits = {0.5f, -1, 2};
  const SamplingOptions options{.temperature = 0, .repetition_penalty = 9, .logprobs = true};
  Sampler sampler(3);
  const std::vector<int32_t> seen = {2};
  const Drawn drawn = sampler.draw(logits.data(), seen, options, 0, 0);
  EXPECT_EQ(drawn.token, 0) << "2 / 9 is below 0.5";
  const double all = std::log(std::exp(0.5) + std::exp(-1.0) + std::exp(2.0));
  EXPECT_NEAR(drawn.logprob, 0.5 - all, 1e-6);
  for (const double temperature : {0.3, 1.0, 4.0}) {
    for (uint64_t n = 0; n < 5; ++n) {
      const Drawn hot = sampler.draw(logits.data(), {},
                                     {.temperature = temperature, .top_p = 0.99, .logprobs = true}, 0, n);
      EXPECT_NEAR(hot.logprob, logits[static_cast<size_t>(hot.token)] - all, 1e-6) << temperature;
    }
  }
}

TEST(Sampler, EqualLogitsGoToTheFirstAndOthersThanNumbersAreRefused) {
  Sampler sampler(3);
  const SamplingOptions greedy{.temperature = 0};
  const auto draw = [&](std::vector<float> logits) {
    return sampler.draw(logits.data(), {}, greedy, 0, 0).token;
  };
  EXPECT_EQ(draw({1, 2, 2}), 1);
  EXPECT_EQ(draw({-INFINITY, -5, -INFINITY}), 1);
  EXPECT_THROW(draw({1, NAN, 2}), base::RunError);
  EXPECT_THROW(draw({NAN, 1, 2}), base::RunError);
  EXPECT_THROW(draw({1, INFINITY, 2}), base::RunError);
  EXPECT_THROW(draw({-INFINITY, -INFINITY, -INFINITY}), base::RunError);
}

}  // namespace
}  // namespace lockstep::run
