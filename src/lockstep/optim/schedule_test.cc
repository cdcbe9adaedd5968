#include "lockstep/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/recipe/schema.h"

namespace lockstep::optim {
namespace {

recipe::Recipe recipe(const std::string& schedule, std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"optim.schedule=" + schedule, "optim.lr=1.0", "optim.warmup=10",
                                    "run.steps=110", "optim.min_lr=0.1"};
  words.insert(words.end(), more.begin(), more.end());
  return recipe::read_recipe({.file = "", .overrides = words}).recipe;
}

struct Row {
  const char* schedule;
  int64_t step;
  double expected;
};

TEST(LearningRate, FollowsItsFormula) {
  const Row rows[] = {
      {"constant", 0, 0.1},
      {"constant", 9, 1},
      {"constant", 100, 1},
      {"linear", 4, 0.5},
      {"linear", 10, 1},
      {"linear", 60, 0.55},
      {"linear", 110, 0.1},
      {"cosine", 10, 1},
      {"cosine", 60, 0.55},
      {"cosine", 110, 0.1},
      {"wsd", 50, 1},
      {"wsd", 88, 1},
      {"wsd", 99, 0.55},
      {"wsd", 110, 0.1},
      {"inverse_sqrt", 10, 1},
      {"inverse_sqrt", 40, 0.5},
      {"inverse_sqrt", 90, 1.0 / 3},
  };
  for (const Row& row : rows) {
    EXPECT_NEAR(learning_rate(recipe(row.schedule), row.step), row.expected, 1e-12)
        << row.schedule << " " << row.step;
  }
}

// optim.decay_steps is how long the schedule is, whatever the run's length: the same rate at every step as in
// a run of that length, and the last one behind it.
TEST(LearningRate, ScheduleOfItsOwnLength) {
  for (const char* schedule : {"constant", "linear", "cosine", "wsd", "inverse_sqrt"}) {
    const recipe::Recipe whole = recipe(schedule);
    const recipe::Recipe longer = recipe(schedule, {"run.steps=400", "optim.decay_steps=110"});
    for (int64_t step = 0; step <= 110; ++step)
      EXPECT_EQ(learning_rate(longer, step), learning_rate(whole, step)) << schedule << " " << step;
  }
  for (const char* schedule : {"linear", "cosine", "wsd"}) {
    const recipe::Recipe longer = recipe(schedule, {"run.steps=400", "optim.decay_steps=110"});
    for (const int64_t step : {111, 200, 399})
      EXPECT_NEAR(learning_rate(longer, step), 0.1, 1e-12) << schedule;
  }
}

TEST(LearningRate, ScalesWithTheBatch) {
  EXPECT_NEAR(batch_scale(recipe("constant", {"batch.global=256", "optim.base_batch=64"})), 1, 1e-12);
  EXPECT_NEAR(
      batch_scale(recipe("constant", {"batch.global=256", "optim.base_batch=64", "optim.lr_scale=linear"})),
      4, 1e-12);
  EXPECT_NEAR(
      batch_scale(recipe("constant", {"batch.global=256", "optim.base_batch=64", "optim.lr_scale=sqrt"})), 2,
      1e-12);
}

}  // namespace
}  // namespace lockstep::optim
