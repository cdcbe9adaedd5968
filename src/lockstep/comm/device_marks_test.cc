// Marks follow the device: on one whose events are passed when the test says so.
#include "lockstep/comm/device_marks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/device/cpu_device.h"

namespace lockstep::comm {
namespace {

using base::RingEntry;
using State = base::RingEntry::State;

class SlowDevice final : public device::CpuDevice {
 public:
  device::Event create_event() override { return reinterpret_cast<device::Event>(++made_); }
  void destroy_event(device::Event) override { ++destroyed; }
  void record(device::Event event, device::Stream) override {
    const std::lock_guard lock(mutex_);
    order_.push_back(event);
  }
  bool done(device::Event event) override {
    const std::lock_guard lock(mutex_);
    const auto last = std::find(order_.rbegin(), order_.rend(), event);
    return order_.rend() - last <= passed;
  }
  intptr_t made() const { return made_; }
  std::atomic<int64_t> passed{0};  // of the events recorded so far
  std::atomic<int> destroyed{0};

 private:
  intptr_t made_ = 0;
  std::mutex mutex_;
  std::vector<device::Event> order_;
};

bool soon(const std::function<bool()>& true_now) {
  for (int k = 0; k < 2000; ++k) {
    if (true_now()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

struct Ring {
  base::TemporaryFolder folder;
  base::RingWriter writer{folder.path() + "/ring", {}};
  State state(size_t n) const { return base::RingReader(folder.path() + "/ring").entries().at(n).state(); }
};

TEST(DeviceMarks, ComeWhenTheStreamPasses) {
  Ring ring;
  SlowDevice device;
  const auto reached = std::make_shared<std::atomic<int64_t>>(-1);
  {
    DeviceMarks marks(device);
    for (int64_t call = 0; call < 2; ++call) {
      const uint64_t ticket = ring.writer.enqueue({});
      marks.expect({&ring.writer, ticket, DeviceMarks::Stamp::start, reached, call}, nullptr);
      marks.expect({&ring.writer, ticket, DeviceMarks::Stamp::finish}, nullptr);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(ring.state(0), State::enqueued) << "the device has not reached it";
    device.passed = 1;
    EXPECT_TRUE(soon([&] { return ring.state(0) == State::started; }));
    EXPECT_EQ(reached->load(), 0);
    device.passed = 3;
    EXPECT_TRUE(soon([&] { return ring.state(0) == State::finished && ring.state(1) == State::started; }));
    EXPECT_EQ(reached->load(), 1);
    // Events that were passed are used again.
    marks.expect({&ring.writer, ring.writer.enqueue({}), DeviceMarks::Stamp::start}, nullptr);
    EXPECT_EQ(device.made(), 4);
  }
  EXPECT_EQ(device.destroyed, 4) << "also of those that were never passed";
  EXPECT_EQ(ring.state(1), State::started);
}

TEST(DeviceMarks, NothingOnceTurnedOff) {
  Ring ring;
  SlowDevice device;
  DeviceMarks marks(device);
  marks.turn_off();
  marks.expect({&ring.writer, ring.writer.enqueue({}), DeviceMarks::Stamp::start}, nullptr);
  EXPECT_EQ(device.made(), 0);
}

}  // namespace
}  // namespace lockstep::comm
