#include "lockstep/run/shared/preemption.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "lockstep/base/temporary_folder.h"

namespace lockstep::run {
namespace {

TEST(Notice, IsKnownByThePlace) {
  struct Case {
    recipe::AutoInt requested;
    std::map<std::string, std::string> environment;
    std::string product, vendor;
    double seconds;
    std::string from;
  };
  const Case cases[] = {
      {{}, {}, "", "", 0, ""},
      {{}, {}, "Google Compute Engine", "Google", 30, "Compute Engine"},
      {{}, {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}, "Google Compute Engine", "Google", 15, "GKE"},
      {{}, {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}, "PowerEdge", "Dell", 0, ""},
      {{}, {}, "p5.48xlarge", "Amazon EC2", 120, "EC2"},
      {{}, {{"SLURM_JOB_ID", "7"}}, "", "", 30, "Slurm"},
      {{}, {{"SLURM_JOB_ID", "7"}, {"SBATCH_SIGNAL", "B:USR1@120"}}, "", "", 120, "Slurm's --signal"},
      {{}, {{"SLURM_JOB_ID", "7"}, {"SBATCH_SIGNAL", "USR1"}}, "", "", 60, "Slurm's --signal"},
      {{}, {{"SLURM_JOB_ID", "7"}, {"SBATCH_SIGNAL", "USR1@x"}}, "", "", 60, "Slurm's --signal"},
      {{45}, {{"SLURM_JOB_ID", "7"}}, "Google Compute Engine", "", 45, "checkpoint.notice"},
  };
  for (const Case& one : cases) {
    const Place place{[&](const std::string& name) {
                        const auto found = one.environment.find(name);
                        return found == one.environment.end() ? std::nullopt : std::optional(found->second);
                      },
                      one.product, one.vendor};
    const Notice notice = find_notice(one.requested, place);
    EXPECT_EQ(notice.seconds, one.seconds) << one.from;
    EXPECT_EQ(notice.from, one.from);
  }
}

struct Told : Observer {
  std::vector<std::string> events;
  void event(const std::string& name, const std::string& why, int64_t) override {
    events.push_back(name + ": " + why);
  }
};

StepReport step(int64_t number, double seconds) {
  StepReport report;
  report.step = number, report.step_ms = seconds * 1000;
  return report;
}

TEST(Notice, IsComparedEarlyAndSaidOnce) {
  struct Case {
    double notice, estimate, step, measured;
    size_t after_steps, after_save;  // events so far
  };
  const Case cases[] = {
      {30, 5, 1, 6, 0, 0},     // fits
      {30, 40, 1, 50, 1, 1},   // said at the start, and not again
      {30, 5, 1, 40, 0, 1},    // the estimate was too good
      {30, 5, 28, 5, 1, 1},    // the step alone is too long
      {0, 500, 9, 500, 0, 0},  // no notice is known
  };
  for (const Case& one : cases) {
    Told told;
    NoticeCheck check({one.notice, "EC2"}, one.estimate, kStepsToStopAlone);
    check.stepped(step(1, 100), told);  // the first step is no measure
    for (int64_t n = 2; n < 5; ++n) check.stepped(step(n, one.step), told);
    EXPECT_EQ(told.events.size(), one.after_steps);
    for (int64_t n = 5; n < 8; ++n) check.saved(one.measured, n, told);
    EXPECT_EQ(told.events.size(), one.after_save);
  }
  EXPECT_NE(notice_warning({30, "Compute Engine"}, 2, 95, false)
                .find("and a save 1 m 35 s (estimated), but Compute Engine gives 30"),
            std::string::npos)
      << notice_warning({30, "Compute Engine"}, 2, 95, false);
}

TEST(EstimateSave, LeavesNothingBehind) {
  const base::TemporaryFolder folder;
  EXPECT_GT(estimate_save(folder.path(), int64_t{1} << 30), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(estimate_save(folder.path() + "/none", 1 << 20), 0);
}

}  // namespace
}  // namespace lockstep::run
