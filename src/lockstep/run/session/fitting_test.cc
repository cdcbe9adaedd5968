#include "lockstep/run/session/fitting.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/run/session/memory_report.h"
#include "lockstep/run/session/remedy_menu.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

// Wide enough for activations and gradients to matter beside each other; planned for a CPU on any machine,
// because cuBLAS's workspace would outweigh both.
std::vector<std::string> recipe_words(const std::string& more) {
  std::vector<std::string> words = {"run.device=cpu",  "model.layers=3", "model.hidden=32", "data.seq_len=32",
                                    "batch.global=64", "batch.slices=8", "batch.strands=8"};
  std::istringstream stream(more);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Plan plan_of(const std::string& more) {
  return make_plan(tiny_recipe(recipe_words(more)), {}, {.must_fit = false});
}

std::string limit_of(int64_t bytes) {
  return fmt::format(" memory.limit_gib={:.15g}", static_cast<double>(bytes) / (1 << 30));
}

// Whatever is advised fits when it is pasted behind the recipe's words.
TEST(Fitting, TheAdviceFits) {
  const plan::Machine machine = plan::machine_named("laptop");
  for (const char* more :
       {"", "model.family=llama", "optim.name=sgd", "batch.strands=1", "memory.recompute=cheap"}) {
    const Plan plan = plan_of(more);
    for (const double share : {0.95, 0.8, 0.6, 0.5}) {
      SCOPED_TRACE(fmt::format("{} at {}", more, share));
      const auto bytes = static_cast<int64_t>(share * static_cast<double>(plan.memory.peak_bytes()));
      for (const MenuRow& way : remedy_menu(plan, bytes, machine)) {
        const Plan changed = plan_of(more + (" " + way.change));
        EXPECT_LE(changed.memory.peak_bytes(), bytes) << way.change;
        EXPECT_EQ(changed.memory.peak_bytes(), way.peak_bytes) << way.change;
        EXPECT_GT(way.step_seconds, 0) << way.change;
        const bool same =
            changed.layout.slices == plan.layout.slices && changed.layout.strands == plan.layout.strands &&
            changed.optimizer.moment_type == plan.optimizer.moment_type &&
            changed.recipe().memory.logits_chunk.value == plan.recipe().memory.logits_chunk.value;
        EXPECT_EQ(way.price.ends_with("same bits"), same) << way.price;
      }
    }
    EXPECT_FALSE(remedy_menu(plan, plan.memory.peak_bytes() * 8 / 10, machine).empty());
  }
}

// One change alone is not enough here, and several together are.
TEST(Fitting, FindsCombinations) {
  const Plan plan = plan_of("");
  const Least least = least_memory(plan, kAllFreedom);
  EXPECT_GT(least.combinations, 50u);
  const int64_t bytes = least.fitting.memory.peak_bytes();
  for (const Remedy& one : remedies(plan)) EXPECT_GT(one.peak_bytes, bytes) << one.change;
  const std::optional<Fitting> found = cheapest_fitting(plan, kAllFreedom, bytes);
  ASSERT_TRUE(found.has_value());
  EXPECT_LE(found->memory.peak_bytes(), bytes);
  EXPECT_FALSE(cheapest_fitting(plan, kAllFreedom, bytes / 2).has_value());
}

// Questions about one plan share what was compiled, and what weights alone rule out is not compiled at all.
TEST(Fitting, CompilesNothingTwiceOrInVain) {
  const Plan plan = plan_of("");
  FittingSearch hopeless(plan, plan.memory.persistent_by_kind.at(program::BufferKind::master) - 1);
  EXPECT_FALSE(hopeless.cheapest(kAllFreedom).has_value());
  EXPECT_EQ(hopeless.compiled(), 0);
  const int64_t bytes = least_memory(plan, kAllFreedom).fitting.memory.peak_bytes();
  FittingSearch tight(plan, bytes * 9 / 10);
  EXPECT_FALSE(tight.cheapest(kAllFreedom).has_value());
  const int once = tight.compiled();
  EXPECT_FALSE(tight.cheapest(kAllFreedom).has_value());
  EXPECT_EQ(tight.compiled(), once);
  EXPECT_GT(once, 0);
}

// On a GPU strands of one slice share gradients, unless logits come in chunks: there more slices, and smaller
// chunks, need more memory where gradients outweigh activations.
TEST(Fitting, FewerSlicesAndWholeLogitsMayNeedLess) {
  const auto on_a_gpu = [](const std::string& more) {
    recipe::Resolved recipe =
        recipe::read_recipe({.file = "",
                             .overrides = recipe_words("run.device=cuda model.layers=1 model.hidden=1024 "
                                                       "model.vocab=20000 model.tied=false data.seq_len=256 "
                                                       "batch.global=8 batch.slices=4 batch.strands=4 "
                                                       "optim.name=sgd optim.momentum=0 " +
                                                       more)});
    return make_plan(
        std::move(recipe), {},
        {.must_fit = false, .exists = false, .device = device::Absent{.kind = device::Kind::cuda}});
  };
  const Plan plan = on_a_gpu("");
  const int64_t bytes = plan.memory.peak_bytes();
  EXPECT_GT(on_a_gpu("batch.slices=8").memory.peak_bytes(), bytes);
  EXPECT_GT(on_a_gpu("memory.logits_chunk=64").memory.peak_bytes(), bytes);
  const std::optional<Fitting> as_it_is = cheapest_fitting(plan, kAllFreedom, bytes);
  ASSERT_TRUE(as_it_is.has_value());
  EXPECT_EQ(change_words(plan, as_it_is->variant), "");
  const int64_t recomputed = on_a_gpu("memory.recompute=full").memory.peak_bytes();
  EXPECT_LT(recomputed, bytes);
  EXPECT_LE(least_memory(plan, kAllFreedom).fitting.memory.peak_bytes(), recomputed);
}

TEST(Fitting, WhatKeepsTheBitsIsSaidSo) {
  const Plan plan = plan_of("");
  const std::optional<Fitting> found = cheapest_fitting(plan, kSameBits, plan.memory.peak_bytes() * 9 / 10);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->variant.slices, 8);
  EXPECT_TRUE(change_words(plan, found->variant).starts_with("memory.recompute="));
}

TEST(OutOfMemory, OffersWhatFitsOrSaysThatNothingDoes) {
  const Plan plan = plan_of("");
  const auto refused = [&](int64_t bytes) -> std::string {
    try {
      make_plan(tiny_recipe(recipe_words(limit_of(bytes))), {});
    } catch (const base::RunError& error) {
      return error.what();
    }
    return "";
  };
  const std::string some = refused(plan.memory.peak_bytes() / 2);
  EXPECT_NE(some.find("changes that fit, cheapest first"), std::string::npos) << some;
  EXPECT_EQ(some.find("too much"), std::string::npos) << some;
  const std::string none = refused(10'000);
  EXPECT_NE(none.find("nothing fits"), std::string::npos) << none;
  EXPECT_NE(none.find("more ranks"), std::string::npos) << none;
}

// Every strand of the tree keeps a buffer of gradients: "auto" takes fewer where those do not fit.
TEST(AutoBatch, FindsWhatFits) {
  const std::string open = "batch.slices=auto batch.strands=auto memory.recompute=";
  const int64_t one = plan_of("batch.slices=64 batch.strands=1").memory.peak_bytes();
  const int64_t eight = plan_of("batch.slices=64 batch.strands=8").memory.peak_bytes();
  ASSERT_LT(one * 110 / 100, eight);
  const Plan fewer = make_plan(tiny_recipe(recipe_words(open + "none" + limit_of(one * 106 / 100))), {});
  EXPECT_LT(fewer.layout.strands, 8);
  EXPECT_LE(fewer.memory.peak_bytes(), fewer.available_bytes);
  // And computes again what it cannot keep.
  const std::string longer = " data.seq_len=128 batch.strands=1", most = "batch.slices=64" + longer;
  const int64_t kept = plan_of(most).memory.peak_bytes();
  const int64_t again = plan_of(most + " memory.recompute=full").memory.peak_bytes();
  ASSERT_LT(again * 110 / 100, kept);
  const Plan smaller =
      make_plan(tiny_recipe(recipe_words(open + "auto" + longer + limit_of(again * 107 / 100))), {});
  EXPECT_NE(smaller.recipe().memory.recompute, "none");
  EXPECT_LE(smaller.memory.peak_bytes(), smaller.available_bytes);
  // What the user has said stays as it is.
  EXPECT_THROW(make_plan(tiny_recipe(recipe_words(limit_of(eight / 2))), {}), base::RunError);
}

}  // namespace
}  // namespace lockstep::run
