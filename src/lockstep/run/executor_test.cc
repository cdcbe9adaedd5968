#include "lockstep/run/executor.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep::run
