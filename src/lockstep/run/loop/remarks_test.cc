#include "lockstep/run/loop/remarks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/text.h"
#include "lockstep/optim/schedule.h"

namespace lockstep::run {
namespace {

recipe::Resolved resolved(const std::vector<std::string>& words) {
  return recipe::read_recipe({.overrides = words});
}

struct Row {
  std::vector<std::string> words;
  const char* says;  // empty: nothing
};

TEST(Remarks, ASchedulesThatCannotBeMeant) {
  for (const Row& row : std::initializer_list<Row>{
           {{}, ""},
           {{"optim.warmup=50", "run.steps=50"}, ""},
           {{"optim.warmup=500", "run.steps=100"},
            "optim.warmup = 500 is longer than the run of run.steps = 100"},
           {{"optim.warmup=500", "run.steps=100"}, "to 20 % of optim.lr"},
           {{"optim.warmup=60", "optim.decay_steps=40"}, "optim.decay_steps = 40 ends before the warm-up"},
           {{"optim.warmup=60", "optim.decay_steps=40", "optim.schedule=constant"}, ""},
           {{"optim.lr=1e-3", "optim.min_lr=1e-2"}, "final learning rate is 1e-05"},
           {{"optim.lr=3e-4", "optim.min_lr=3e-5"}, "optim.min_lr = 3e-05 is a fraction of optim.lr"},
           {{"optim.lr=0.5", "optim.min_lr=0.1"}, ""},
           {{"optim.lr=1e-3", "optim.min_lr=0"}, ""},
           {{"optim.lr=1e-3", "optim.min_lr=1e-2", "optim.schedule=constant"}, ""},
       }) {
    const std::string said = base::join(schedule_remarks(resolved(row.words)), "\n");
    EXPECT_EQ(said.empty(), *row.says == '\0') << base::join(row.words, " ") << ": " << said;
    EXPECT_NE(said.find(row.says), std::string::npos) << base::join(row.words, " ") << ": " << said;
  }
}

TEST(Remarks, MoreThreadsThanProcessors) {
  struct ThreadRow {
    ThreadFacts facts;
    const char* says;
  };
  for (const ThreadRow& row : std::initializer_list<ThreadRow>{
           {{.threads = 2, .processors = 2}, ""},
           {{.threads = 64, .processors = 2, .from_recipe = true},
            "run.threads = 64 exceeds the 2 processors"},
           {{.threads = 64, .processors = 2, .variable = "64"}, "OMP_NUM_THREADS = 64 exceeds"},
           {{.threads = 2, .local_ranks = 4, .processors = 2, .from_recipe = true}, "on each of 4 ranks"},
           {{.threads = 1, .local_ranks = 4, .processors = 2}, ""},
           {{.threads = 1, .local_ranks = 4, .processors = 2, .variable = "1"}, ""},  // a launcher sets it
           {{.threads = 2, .local_ranks = 4, .processors = 2, .variable = "2"}, "on each of 4 ranks"},
           {{.threads = 2, .processors = 2, .variable = "many"}, "\"many\" is not a number of threads"},
           {{.threads = 2, .processors = 2, .variable = "0"}, "is ignored"},
           {{.threads = 2, .processors = 2, .variable = ""}, ""},
           {{.threads = 2, .processors = 2, .variable = "2,4"}, ""},
       }) {
    const std::string said = base::join(thread_remarks(row.facts), "\n");
    EXPECT_EQ(said.empty(), *row.says == '\0') << said;
    EXPECT_NE(said.find(row.says), std::string::npos) << said;
  }
}

TEST(Remarks, AnotherLengthIsExplained) {
  struct LengthRow {
    std::vector<std::string> before, now;
    const char* says;
  };
  for (const LengthRow& row : std::initializer_list<LengthRow>{
           {{"run.steps=150"}, {"run.steps=150"}, ""},
           {{"run.steps=150"},
            {"run.steps=200"},
            "run.steps was 150, is now 200: the cosine schedule now ends at step 200"},
           {{"run.steps=150"}, {"run.steps=200"}, "add optim.decay_steps=150"},
           {{"run.steps=150"}, {"run.steps=200", "optim.decay_steps=150"}, "is unaffected"},
           {{"run.steps=150", "optim.schedule=constant"},
            {"run.steps=200", "optim.schedule=constant"},
            "is unaffected"},
           {{"run.steps=150"}, {"run.steps=150", "optim.decay_steps=150"}, ""},
           {{"run.steps=150"},
            {"run.steps=150", "optim.decay_steps=300"},
            "the schedule had 150 steps, now has 300"},
           {{"run.steps=400", "optim.schedule=wsd"},
            {"run.steps=500", "optim.schedule=wsd"},
            "run.steps was 400, is now 500: the wsd schedule ends at step 500 instead of 400"},
       }) {
    const std::string said = schedule_change(resolved(row.before).recipe, resolved(row.now).recipe, 100);
    EXPECT_EQ(said.empty(), *row.says == '\0') << said;
    EXPECT_NE(said.find(row.says), std::string::npos) << said;
  }
  // The rates that it names are those of the next step.
  const recipe::Recipe before = resolved({"run.steps=150"}).recipe, now = resolved({"run.steps=200"}).recipe;
  EXPECT_NE(schedule_change(before, now, 100)
                .find(fmt::format("at step 101 is {:.4g} instead of {:.4g}", optim::learning_rate(now, 100),
                                  optim::learning_rate(before, 100))),
            std::string::npos)
      << schedule_change(before, now, 100);
}

}  // namespace
}  // namespace lockstep::run
