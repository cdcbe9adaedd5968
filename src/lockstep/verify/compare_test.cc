#include "lockstep/verify/compare.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/verify/testing.h"

namespace lockstep::verify {
namespace {

const std::vector<BlockNames> kBlocks{{"embed", {"wte.weight"}},
                                      {"h.0", {"h.0.attn.weight", "h.0.mlp.weight"}},
                                      {"h.1", {"h.1.attn.weight", "h.1.mlp.weight"}},
                                      {"head", {"ln_f.weight"}}};
const Tolerance kExact{}, kClose = tolerance_of("fp32");

struct Pair {
  base::TemporaryFolder folder;
  recipe::Recipe recipe;
  Difference of(const Forged& other, const Tolerance& tolerance) {
    forge_run(folder.path() + "/one", kBlocks, recipe, {});
    forge_run(folder.path() + "/other", kBlocks, recipe, other);
    return compare(read_run(folder.path() + "/one"), read_run(folder.path() + "/other"), kBlocks, recipe,
                   tolerance);
  }
};

TEST(Compare, TheSameRunHasTheSameBits) {
  Pair pair;
  const Difference difference = pair.of({}, kExact);
  EXPECT_TRUE(difference.same_bits);
  EXPECT_EQ(difference.loss, 0);
  EXPECT_EQ(difference.gradient, 0);
  EXPECT_FALSE(difference.blame);
  EXPECT_TRUE(difference.within(kExact) && difference.within(kClose));
}

// What a broken layout would leave in one tensor. Clipping spreads it to all others, and only the right one
// is named.
TEST(Compare, FaultsInOneTensorAreNamed) {
  struct Fault {
    const char* name;
    std::function<void(Values&)> make;
  };
  const std::vector<Fault> faults{
      {"a wrong scale",
       [](Values& v) {
         for (float& x : v) x *= 2;
       }},
      {"a skipped reduction",
       [](Values& v) {
         for (size_t k = 0; k < v.size() / 2; ++k) v[k] *= 0.5F;
       }},
      {"a swapped pair", [](Values& v) { std::swap_ranges(v.begin(), v.begin() + 32, v.begin() + 32); }},
      {"one element", [](Values& v) { v[17] += 0.01F; }},
      {"not a number", [](Values& v) { v[3] = NAN; }}};
  for (const double clip : {0.0, 1.0}) {
    const base::TemporaryFolder folder;
    recipe::Recipe recipe;
    recipe.optim.clip = clip;
    const std::string one = folder.path() + "/one", other = folder.path() + "/other";
    forge_run(one, kBlocks, recipe, {.last = 1});
    for (const Fault& fault : faults) {
      for (const auto& [tensor, block] :
           {std::pair{"wte.weight", 0}, {"h.0.mlp.weight", 1}, {"h.1.attn.weight", 2}, {"ln_f.weight", 3}}) {
        const std::string wrong = tensor;
        std::filesystem::remove_all(other);
        forge_run(other, kBlocks, recipe, {.last = 1, .spoil = [&](const std::string& name, Values& v) {
                                             if (name == wrong) fault.make(v);
                                           }});
        for (const Tolerance& tolerance : {kExact, kClose}) {
          const Difference d = compare(read_run(one), read_run(other), kBlocks, recipe, tolerance);
          EXPECT_FALSE(d.within(tolerance)) << fault.name << " in " << tensor;
          ASSERT_TRUE(d.blame) << fault.name << " in " << tensor;
          EXPECT_EQ(d.blame->block, block) << fault.name << " in " << tensor << ", clip " << clip;
          EXPECT_EQ(d.blame->tensor, wrong) << fault.name;
          EXPECT_EQ(d.blame->blocks, 1) << fault.name << " in " << tensor << ", clip " << clip;
        }
      }
    }
  }
}

// A fault that the backward pass hands on spoils the blocks before it; one of the forward pass spoils all.
TEST(Compare, TheFirstBlockIsTheOneThatThePassReachesFirst) {
  Pair pair;
  const auto spoil = [](const std::string& name, Values& v) {
    if (name == "wte.weight" || name.starts_with("h.0") || name == "h.1.mlp.weight") v[0] += 1;
  };
  Difference d = pair.of({.spoil = spoil}, kClose);
  ASSERT_TRUE(d.blame);
  EXPECT_EQ(d.blame->block_name, "h.1");
  EXPECT_EQ(d.blame->blocks, 3);
  Pair other;
  d = other.of({.loss = 2.6, .spoil = spoil}, kClose);
  ASSERT_TRUE(d.blame);
  EXPECT_EQ(d.blame->block_name, "embed");
  EXPECT_NEAR(d.loss, 0.04, 1e-9);
}

TEST(Compare, RoundingIsWithinTheToleranceButHasOtherBits) {
  Pair pair;
  const Difference d = pair.of({.loss = 2.5 * (1 + 1e-6),
                                .spoil =
                                    [](const std::string&, Values& v) {
                                      for (float& x : v) x *= 1.00001F;
                                    }},
                               kClose);
  EXPECT_TRUE(d.within(kClose));
  EXPECT_FALSE(d.within(kExact));
  EXPECT_FALSE(d.blame);
  EXPECT_GT(d.gradient, 1e-6);
}

TEST(Compare, LaterBitsCountToo) {
  Pair pair;
  const Difference d = pair.of({.spoil_weights =
                                    [](const std::string& name, Values& v, int64_t step) {
                                      if (name == "wte.weight" && step == 2) v[0] += 1;
                                    }},
                               kExact);
  EXPECT_FALSE(d.same_bits);
  EXPECT_FALSE(d.blame);
}

TEST(Compare, DamagedRunsAreRefused) {
  const base::TemporaryFolder folder;
  EXPECT_THROW(read_run(folder.path()), base::Error);
  folder.write("metrics.jsonl", "");
  EXPECT_THROW(read_run(folder.path()), base::DataError);
  folder.write("metrics.jsonl", "{\"step\": 1, \"loss\"");
  EXPECT_THROW(read_run(folder.path()), base::DataError);
  folder.write("metrics.jsonl", "{\"step\": 1, \"loss\": 2, \"loss_hex\": 7}");
  EXPECT_THROW(read_run(folder.path()), base::DataError);
  EXPECT_THROW(differing_tensor(folder.path(), folder.path()), base::DataError);
}

}  // namespace
}  // namespace lockstep::verify
