// A run that is stopped in one layout and resumed in another: tensor, pipeline and context as well as shards.
// Ranks are threads here.
//
// Layouts that give one rank's bits go on with one rank's bits, whoever saved. Tensor and context ranks sum
// in an order of their own, so they go on with their own bits when they saved themselves, and within rounding
// of one rank's otherwise.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/run/saving/saving_testing.h"
#include "lockstep/run/session/rank_layout.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

using Words = std::vector<std::string>;
constexpr int64_t kSteps = 4, kStop = 2;

struct Layout {
  const char* name;
  int world;
  Words words;
  bool exact;  // one rank's bits
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"one", 1, {}, true},
      {"zero-3", 2, {"parallel.zero=3"}, true},
      {"pipeline", 2, {"parallel.pipeline=2"}, true},
      {"interleaved", 2, {"parallel.pipeline=2", "parallel.schedule=interleaved"}, true},
      {"pipeline+zero-2",
       4,
       {"parallel.pipeline=2", "parallel.zero=2", "parallel.schedule=zero-bubble"},
       true},
      {"tensor", 2, {"parallel.tensor=2", "parallel.sequence=true"}, false},
      {"tensor+zero-3", 4, {"parallel.tensor=2", "parallel.zero=3"}, false},
      {"context", 2, {"parallel.context=2"}, false},
      {"tensor+pipeline", 4, {"parallel.tensor=2", "parallel.pipeline=2"}, false},
  };
  return all;
}

struct Recipe {
  const char* name;
  Words words;
};
void PrintTo(const Recipe& recipe, std::ostream* out) { *out << recipe.name; }

struct Outcome {
  std::string hash;
  std::vector<double> losses;
  bool operator==(const Outcome&) const = default;
};
void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << outcome.hash << " after";
  for (const double loss : outcome.losses) *out << fmt::format(" {:a}", loss);
}

struct Losses : Observer {
  std::vector<double> all;
  void stepped(const StepReport& report) override { all.push_back(report.loss); }
};

// Trains from `from` (empty: from the start); with `save_in`, saves after kStop steps.
Outcome run_on(const Layout& layout, const Words& recipe, const std::string& from,
               const std::string& save_in) {
  Words words = recipe;
  words.insert(words.end(), layout.words.begin(), layout.words.end());
  std::vector<Outcome> outcomes(static_cast<size_t>(layout.world));
  on_ranks(layout.world, "shm", [&](comm::World& world) {
    Ranks ranks(world);
    Session session(make_plan(tiny_recipe(words), {}, for_this(ranks)), &ranks);
    Losses losses;
    const std::string hash = train_and_save(session, from, save_in, kStop, losses).params_hash;
    outcomes[static_cast<size_t>(world.rank())] = {hash, losses.all};
  });
  for (const Outcome& one : outcomes) EXPECT_EQ(one, outcomes[0]) << layout.name << ": ranks differ";
  return outcomes[0];
}

Outcome tail_of(Outcome whole) {
  whole.losses.erase(whole.losses.begin(), whole.losses.begin() + kStop);
  return whole;
}

double largest_difference(const Outcome& a, const Outcome& b) {
  if (a.losses.size() != b.losses.size()) return 1;
  double most = 0;
  for (size_t k = 0; k < a.losses.size(); ++k)
    most = std::max(most, std::abs(a.losses[k] - b.losses[k]) / std::abs(b.losses[k]));
  return most;
}

class Resume : public testing::TestWithParam<Recipe> {};

TEST_P(Resume, InAnyOtherLayout) {
  LS_NEEDS_HOST_MEMORY();
  Words recipe = {
      "model.layers=4", "model.hidden=32", "model.heads=4",     "batch.global=8",
      "batch.slices=8", "batch.strands=8", "checkpoint.keep=9", fmt::format("run.steps={}", kSteps)};
  recipe.insert(recipe.end(), GetParam().words.begin(), GetParam().words.end());
  Outcome alone;
  for (const Layout& saves : layouts()) {
    const base::TemporaryFolder run;
    const Outcome whole = run_on(saves, recipe, "", run.path());
    if (saves.world == 1) alone = whole;
    if (saves.exact) {
      EXPECT_EQ(whole, alone) << saves.name;
    }
    const std::string folder = fmt::format("{}/checkpoints/step-{:08d}", run.path(), kStop);
    Outcome one;  // one rank, from the same checkpoint
    for (const Layout& loads : layouts()) {
      SCOPED_TRACE(fmt::format("stopped on {}, resumed on {}", saves.name, loads.name));
      const Outcome rest = run_on(loads, recipe, folder, "");
      if (loads.world == 1) one = rest;
      if (&loads == &saves) {
        EXPECT_EQ(rest, tail_of(whole));
      }
      if (loads.exact) {
        EXPECT_EQ(rest, one);
      }
      EXPECT_LT(largest_difference(rest, one), 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, Resume,
    testing::Values(Recipe{"gpt2_dropout", {"model.dropout=0.1", "optim.schedule=cosine"}},
                    Recipe{"frozen_and_groups",
                           {"tune.freeze=*wte*,*.h.0.*,*.h.2.attn.c_attn.*", "optim.layer_lr_decay=0.9",
                            "optim.groups=*.mlp.* kind=lion lr_scale=0.1,*.bias weight_decay=0.2"}},
                    Recipe{"llama_fp16_loss_scale",
                           {"model.family=llama", "precision.compute=fp16", "precision.growth_interval=2"}}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace lockstep::run
