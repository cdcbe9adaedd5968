#include "lockstep/training/data_watch.h"

#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/store/uri.h"

namespace lockstep::training {
namespace {

constexpr int64_t kSteps = 50;      // looked at together; the first ones fill the loader
constexpr double kSlowShare = 0.1;  // of the time
constexpr double kSlowMs = 1;       // of a step: less is nobody's loss

}  // namespace

DataWatch::DataWatch(const recipe::Recipe::Data& data, run::Observer& everyone)
    : path_(data.path), streams_(store::is_uri(data.path)), everyone_(everyone) {}

// Told when it begins to be slow and when it is fast again, not every time.
void DataWatch::stepped(const run::StepReport& report) {
  if (!streams_) return;
  waited_ms_ += report.data_wait_ms;
  all_ms_ += report.step_ms;
  if (++steps_ < kSteps) return;
  const bool slow = waited_ms_ > kSlowShare * all_ms_ && waited_ms_ > kSlowMs * static_cast<double>(kSteps);
  if (slow && !slow_) {
    everyone_.event(
        "data_slow",
        fmt::format("the last {} steps waited {:.0f} % of their time for data from {}: the store "
                    "does not keep up; raise data.prefetch and data.workers, or train nearer to it",
                    kSteps, 100 * waited_ms_ / all_ms_, base::quoted(path_, 200)),
        report.step);
  } else if (!slow && slow_) {
    everyone_.event("data_fast", fmt::format("data from {} comes in time again", base::quoted(path_, 200)),
                    report.step);
  }
  slow_ = slow;
  steps_ = 0;
  waited_ms_ = all_ms_ = 0;
}

}  // namespace lockstep::training
