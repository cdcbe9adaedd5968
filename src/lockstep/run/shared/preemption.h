// How long a machine still lives after it has been told to stop, and whether a step and a save fit into that.
//
// A spot machine on Compute Engine gives 30 s, GKE 15, EC2 120, Slurm what --signal says; checkpoint.notice
// overrides. Whether it fits is said at the start of a run, from an estimate, and again once a save has been
// measured: not when it is too late.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/recipe/recipe.h"
#include "lockstep/run/shared/observer.h"

namespace lockstep::run {

struct Notice {
  double seconds = 0;  // 0: not known
  std::string from;    // "Compute Engine", "checkpoint.notice"
};

// What can be known of the place: the environment, and /sys/class/dmi/id's product_name and sys_vendor.
struct Place {
  std::function<std::optional<std::string>(const std::string& name)> variable;
  std::string product, vendor;
};
Place this_place();
Notice find_notice(const recipe::AutoInt& requested, const Place& place);

// Empty: it fits, or there is no notice to fit into. Else a warning with the arithmetic and what helps.
std::string notice_warning(const Notice& notice, double stop_seconds, double save_seconds, bool measured);

// Until ranks have stopped they finish the step in which they hear of it; several hear of it one step later.
constexpr int64_t kStepsToStopAlone = 1, kStepsToStop = 2;

// What writing so many bytes into the folder takes, from a trial with a small file. 0: could not be tried.
double estimate_save(const std::string& folder, int64_t bytes);

// Watches step and save times on the first rank and says once, as a `notice` event, when they do not fit;
// again only if a measured save contradicts an estimate that did.
class NoticeCheck {
 public:
  NoticeCheck(Notice notice, double estimated_save, int64_t steps_to_stop)
      : notice_(std::move(notice)), save_(estimated_save), steps_to_stop_(steps_to_stop) {}
  void stepped(const StepReport& report, Observer& tell);
  void saved(double seconds, int64_t step, Observer& tell);

 private:
  void look(int64_t step, Observer& tell);
  Notice notice_;
  double save_ = 0, step_ = 0;
  int64_t steps_to_stop_ = 1;
  int64_t steps_ = 0;
  bool measured_ = false, said_ = false;
};

}  // namespace lockstep::run
