#include "lockstep/plan/loss_law.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

// Chinchilla itself: 70 B parameters and 1.4 T tokens. The paper's own law gives 1.936 there.
TEST(LossLaw, ChinchillaAsPublished) {
  const LossEstimate e =
      expect_loss({.parameters = 70e9, .tokens = 1.4e12}, {published_laws()[0]}, std::nullopt);
  EXPECT_NEAR(e.loss, 1.936, 0.005);
  EXPECT_FALSE(e.shifted);
}

TEST(LossLaw, PassesThroughAFinishedRun) {
  const TrainedPoint run{.parameters = 1e8, .tokens = 2e9, .loss = 3.3};
  const LossEstimate same = expect_loss(run, published_laws(), run);
  EXPECT_NEAR(same.loss, 3.3, 1e-9);
  EXPECT_NEAR(same.stretch, 1, 1e-9);
  const LossEstimate larger = expect_loss({.parameters = 1e9, .tokens = 2e10}, published_laws(), run);
  EXPECT_LT(larger.high, 3.3);
  EXPECT_LE(larger.low, larger.loss);
  EXPECT_NEAR(larger.stretch, 100, 1e-9);
}

TEST(LossLaw, OnesOwn) {
  EXPECT_EQ(parse_law("E=1.5 A=400 B=410 alpha=0.3 beta=0.2").b, 410);
  for (const char* words : {"", "E=1", "E=1 A=1 B=1 alpha=1 beta=x", "E=1 A=-1 B=1 alpha=1 beta=1",
                            "E=1 A=1 B=1 alpha=1 gamma=1", "E=1 A=1 B=1 alpha=0 beta=1"})
    EXPECT_THROW(parse_law(words), base::ConfigError) << words;
}

}  // namespace
}  // namespace lockstep::plan
