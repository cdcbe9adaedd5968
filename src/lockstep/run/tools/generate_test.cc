// Text that is drawn against the softmax of a model in fp64: frequencies at several temperatures, and who may
// be drawn.
#include "lockstep/run/tools/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/run/reference/sampling.h"
#include "lockstep/run/reference/session.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

using Strings = std::vector<std::string>;

const Strings kSmall = {"model.layers=2",         "model.hidden=12",     "model.heads=2",
                        "data.seq_len=8",         "model.context=16",    "model.init_std=0.3",
                        "batch.global=1",         "batch.slices=1",      "model.dropout=0.5",
                        "precision.compute=fp32", "precision.tf32=false"};

Strings words_of(const std::string& family) {
  Strings words = kSmall;
  words.push_back("model.family=" + family);
  words.push_back("run.device=" + test_device());
  return words;
}

struct Model {
  reference::Words words;
  Session session;
  reference::Weights weights;
  Generator generator;
  explicit Model(const std::string& family)
      : words(words_of(family)),
        session(make_plan(recipe::read_recipe({.file = "", .overrides = words_of(family)}), {})),
        weights((reference::stir(session), reference::read_back(session))),
        generator(session) {}

  // Of what follows a text no longer than the context. Only tokens that the data has are drawn.
  std::vector<double> logits_after(const std::vector<int32_t>& text) {
    std::vector<double> all = reference::logits_after(words, weights, text);
    all.resize(static_cast<size_t>(session.plan.dataset->vocab()));
    return all;
  }
  std::vector<int32_t> draw(const std::vector<int32_t>& prompt, const SamplingOptions& options) {
    std::vector<int32_t> drawn;
    generator.run(prompt, options, [&](int32_t token) { return drawn.push_back(token), true; });
    return drawn;
  }
};

struct Row {
  double temperature;
  int64_t top_k;
};

TEST(Generate, DrawsAsOftenAsTheSoftmaxSays) {
  for (const char* family : {"gpt2", "llama", "mlp"}) {
    Model model(family);
    const std::vector<int32_t> prompt = {3, 17, 60, 9};
    const std::vector<double> logits = model.logits_after(prompt);
    for (const Row& row : {Row{1, 0}, Row{0.5, 0}, Row{2, 0}, Row{1, 5}, Row{0.7, 12}}) {
      SCOPED_TRACE(std::string(family) + " " + std::to_string(row.temperature) + " " +
                   std::to_string(row.top_k));
      const std::vector<double> chances =
          reference::chances(logits, row.temperature, static_cast<size_t>(row.top_k));
      constexpr int kDraws = 1500;
      std::vector<double> counts(chances.size(), 0);
      for (uint64_t seed = 1; seed <= kDraws; ++seed) {
        const SamplingOptions options{
            .tokens = 1, .temperature = row.temperature, .top_k = row.top_k, .seed = seed};
        const auto token = static_cast<size_t>(model.draw(prompt, options).at(0));
        ASSERT_LT(token, counts.size()) << "a token that the data has not";
        ++counts[token];
      }
      EXPECT_LT(reference::chi_square_excess(counts, chances, kDraws), 5);
      for (size_t i = 0; i < counts.size(); ++i) EXPECT_FALSE(chances[i] == 0 && counts[i] > 0) << i;
    }
  }
}

// With a cache of keys and values, token by token, and beyond the context, where the later half is read
// again.
TEST(Generate, TheLikeliestTokensFollowEachOther) {
  for (const char* family : {"gpt2", "llama", "mlp"}) {
    Model model(family);
    std::vector<int32_t> text = {5, 80, 2};
    const std::vector<int32_t> drawn = model.draw(text, {.tokens = 40, .temperature = 0});
    size_t first = 0;  // of what the model still sees
    for (size_t n = 0; n < drawn.size(); ++n) {
      const std::vector<double> logits =
          model.logits_after({text.begin() + static_cast<std::ptrdiff_t>(first), text.end()});
      const auto best = std::max_element(logits.begin(), logits.end());
      EXPECT_NEAR(logits[static_cast<size_t>(drawn[n])], *best, 1e-5) << family << " " << n;
      const bool full = text.size() - first == 16;
      text.push_back(drawn[n]);
      if (full) first = text.size() - 8;
    }
    EXPECT_EQ(drawn.size(), 40u);
  }
}

// Token n of a text is drawn by (seed, n): a whole text is as likely as the model says it is.
TEST(Generate, LongTextsAreAsLikelyAsTheModelSays) {
  Model model("gpt2");
  for (const double temperature : {0.6, 1.0, 1.7}) {
    reference::Surprise surprise;
    for (uint64_t seed = 1; seed <= 30; ++seed) {
      std::vector<int32_t> text = {static_cast<int32_t>(seed)};
      for (const int32_t token : model.draw(text, {.tokens = 15, .temperature = temperature, .seed = seed})) {
        surprise.add(reference::chances(model.logits_after(text), temperature, 0),
                     static_cast<size_t>(token));
        text.push_back(token);
      }
    }
    EXPECT_LT(std::fabs(surprise.deviations()), 5) << temperature;
  }
}

}  // namespace
}  // namespace lockstep::run
