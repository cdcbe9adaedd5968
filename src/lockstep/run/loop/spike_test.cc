#include "lockstep/run/loop/spike.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

TEST(SpikeWatch, Table) {
  struct Case {
    const char* what;
    int before;  // losses about 2, with a spread of 0.02
    double loss;
    bool jump;
  };
  const Case cases[] = {
      {"as usual", 40, 2.03, false},
      {"much higher", 40, 4, true},
      {"higher, but not by a third", 40, 2.5, false},
      {"lower", 40, 0.1, false},
      {"too early to say", 10, 50, false},
      {"one too early", 19, 50, false},
      {"just enough to say", 20, 50, true},
      {"not a number is told elsewhere", 40, std::numeric_limits<double>::quiet_NaN(), false},
      {"infinite too", 40, std::numeric_limits<double>::infinity(), false},
  };
  for (const Case& one : cases) {
    SpikeWatch watch;
    for (int k = 0; k < one.before; ++k) ASSERT_FALSE(watch.jumps(2 + 0.02 * std::sin(k)));
    EXPECT_EQ(watch.jumps(one.loss), one.jump) << one.what;
  }
  SpikeWatch falls;  // a run that learns is no spike, at any step
  for (int k = 0; k < 400; ++k) EXPECT_FALSE(falls.jumps(2 + 8 * std::exp(-k / 30.0))) << k;
}

// One slice of the batch is nonsense to the model: it is named, on any number of ranks, and where each slice
// has several losses, of pieces of its sequences.
TEST(WorstSlice, IsTheOneWithTheStrangeLabels) {
  if (test_device() != "cpu") GTEST_SKIP() << "ranks in threads: only on the CPU";
  for (const auto& [world, pieces] : {std::pair(1, 1), {2, 1}, {1, 2}, {1, 4}}) {
    on_ranks(world, "shm", [&, pieces = pieces](comm::World& one) {
      Ranks ranks(one);
      Session session(make_plan(tiny_recipe({"batch.global=8", "batch.slices=4", "batch.strands=4",
                                             fmt::format("batch.sequence_strands={}", pieces)}),
                                {}, for_this(ranks)),
                      &ranks);
      const recipe::Recipe& r = session.plan.recipe();
      data::LoaderOptions options{.seed = 1,
                                  .global = 8,
                                  .slices = 4,
                                  .own_slices = session.plan.program.own_slices,
                                  .seq_len = r.data.seq_len};
      data::Batch batch = data::read_batch(*session.plan.dataset, options, 0);
      // Every other slice loses all labels but one, so that slice 2 has the highest sum.
      const size_t each = batch.labels.size() / session.plan.program.own_slices.size();
      for (size_t k = 0; k < session.plan.program.own_slices.size(); ++k) {
        if (session.plan.program.own_slices[k] == 2) continue;
        for (size_t j = 1; j < each; ++j) batch.labels[k * each + j] = -1;
      }
      const SliceLoss worst =
          worst_slice(session, {.seed = 1, .valid_tokens = static_cast<double>(batch.valid_labels)},
                      {batch.inputs, batch.labels});
      EXPECT_EQ(worst.slice, 2);
      EXPECT_GT(worst.loss, 0);
    });
  }
}

}  // namespace
}  // namespace lockstep::run
