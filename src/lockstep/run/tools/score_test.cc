// Log-likelihoods against the softmax of the fp64 reference.
#include "lockstep/run/tools/score.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/philox.h"
#include "lockstep/run/reference/sampling.h"
#include "lockstep/run/reference/session.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

std::vector<std::string> words_of(const std::string& family) {
  return {"model.layers=2",
          "model.hidden=12",
          "model.heads=2",
          "data.seq_len=8",
          "model.context=40",
          "model.init_std=0.3",
          "batch.global=1",
          "batch.slices=1",
          "model.dropout=0.5",
          "precision.compute=fp32",
          "precision.tf32=false",
          "model.family=" + family,
          "run.device=" + test_device()};
}

// Items of all lengths: of one token, with one scored, with all scored, as long as the context.
TEST(Score, IsTheLogLikelihoodInAnyCompany) {
  for (const char* family : {"gpt2", "llama"}) {
    const reference::Words words(words_of(family));
    Session session(make_plan(recipe::read_recipe({.file = "", .overrides = words_of(family)}), {}));
    reference::stir(session);
    reference::Weights weights = reference::read_back(session);
    std::vector<ScoreItem> items;
    for (int64_t i = 0; i < 90; ++i) {
      ScoreItem item;
      const int64_t length = i == 0 ? 41 : 1 + i % 13;
      for (int64_t t = 0; t < length; ++t)
        item.tokens.push_back(
            static_cast<int32_t>(base::philox(9, static_cast<uint64_t>(i), static_cast<uint64_t>(t)).x % 90));
      item.first = std::max<int64_t>(1, i % 3 == 0 ? 1 : length - i % 4);
      items.push_back(item);
    }
    Scorer scorer(session, 40);
    size_t next = 0;
    EXPECT_TRUE(scorer.run(items, [&](size_t index, const Score& score) {
      ASSERT_EQ(index, next++);
      const ScoreItem& item = items[index];
      double sum = 0;
      bool greedy = true;
      for (size_t t = static_cast<size_t>(item.first); t < item.tokens.size(); ++t) {
        const std::vector<int32_t> before(item.tokens.begin(),
                                          item.tokens.begin() + static_cast<std::ptrdiff_t>(t));
        const std::vector<double> logits = reference::logits_after(words, weights, before);
        const double top = *std::max_element(logits.begin(), logits.end());
        double total = 0;
        for (const double logit : logits) total += std::exp(logit - top);
        const double own = logits[static_cast<size_t>(item.tokens[t])];
        sum += own - top - std::log(total);
        greedy = greedy && own == top;
      }
      EXPECT_NEAR(score.logprob, sum, 1e-4) << family << " " << index;
      EXPECT_EQ(score.tokens, std::max<int64_t>(0, static_cast<int64_t>(item.tokens.size()) - item.first));
      EXPECT_EQ(score.greedy, greedy) << family << " " << index;
    }));
    EXPECT_EQ(next, items.size());
    const std::atomic<int> stop = 2;
    EXPECT_FALSE(scorer.run(
        items, [](size_t, const Score&) {}, &stop));
  }
}

}  // namespace
}  // namespace lockstep::run
