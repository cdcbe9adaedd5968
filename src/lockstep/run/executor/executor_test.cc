#include "lockstep/run/executor/executor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/device/cpu_device.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

// As a GPU that has met a fault: every later call says so.
class FailingDevice : public device::CpuDevice {
 public:
  void synchronize(device::Stream) override {
    if (failed) throw base::IoError(410, "the device has failed");
  }
  bool failed = false;
};

TEST(Executor, IsTakenDownOnADeviceThatHasFailed) {
  Plan plan = make_plan(tiny_recipe({"run.device=cpu"}), {});
  auto owned = std::make_unique<FailingDevice>();
  FailingDevice& device = *owned;
  plan.device = std::move(owned);
  try {
    Session session(std::move(plan));
    device.failed = true;
    device.synchronize(nullptr);
    FAIL() << "the device answers";
  } catch (const base::IoError& error) {  // and not std::terminate on the way here
    EXPECT_EQ(error.number(), 410);
  }
}

// A step's time is from the end of the one before it, or from where the clock was started again.
TEST(Executor, TimesStepsByTheDevice) {
  Session session = tiny_session({});
  const data::Batch batch = batch_of(session, 0);
  const kernels::StepInputs inputs{.seed = 1, .valid_tokens = static_cast<double>(batch.valid_labels)};
  const auto late_step = [&](bool restart) {
    constexpr auto kLate = std::chrono::milliseconds(150);
    std::this_thread::sleep_for(kLate);
    if (restart) session.executor->restart_clock();
    const int64_t began = base::monotonic_ns();
    session.executor->step(inputs, {batch.inputs, batch.labels});
    static_cast<void>(session.executor->read_oldest());
    const double seen = static_cast<double>(base::monotonic_ns() - began) / 1e6;
    const double told = session.executor->last_step_ms();
    EXPECT_GT(told, 0);
    if (restart) {
      EXPECT_LT(told, seen + 1);
    } else {
      EXPECT_GE(told, 149);
    }
  };
  late_step(true);
  for (const bool restart : {false, true, false, false, true}) late_step(restart);
}

}  // namespace
}  // namespace lockstep::run
