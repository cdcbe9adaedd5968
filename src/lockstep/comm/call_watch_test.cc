// A call that does not end ends the process: with a device that never comes to it, and a thread that trains
// that never comes back from it.
#include "lockstep/comm/call_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "lockstep/comm/engine.h"
#include "lockstep/device/cpu_device.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

constexpr int kUnended = 42;  // the exit code of a process that the watch left alone

// Events are passed in the order in which they were recorded, as many as the test says.
class StuckDevice final : public device::CpuDevice {
 public:
  device::Event create_event() override { return reinterpret_cast<device::Event>(++made_); }
  void destroy_event(device::Event) override {}
  void record(device::Event event, device::Stream) override {
    if (blocks_at_record == ++recorded_) hold();
    const std::lock_guard lock(mutex_);
    order_.push_back(event);
  }
  bool done(device::Event event) override {
    if (driver_blocks) hold();
    const std::lock_guard lock(mutex_);
    const auto last = std::find(order_.rbegin(), order_.rend(), event);
    return order_.rend() - last <= passed;
  }
  [[noreturn]] static void hold() {
    for (;;) ::pause();
  }
  std::atomic<int64_t> passed{0};
  std::atomic<bool> driver_blocks{false};
  int blocks_at_record = -1;

 private:
  intptr_t made_ = 0;
  int recorded_ = 0;
  std::mutex mutex_;
  std::vector<device::Event> order_;
};

// Its calls are handed to the device and do nothing there.
class DeviceGroup final : public Group {
 public:
  explicit DeviceGroup(DeviceMarks& marks, const char* name = "data") : Group(name, 0, 3, row()) {
    record_in(nullptr, 0, &marks);
  }
  static const Engine& row() {
    static const Engine enqueuing{.name = "nccl", .enqueues = true, .make = {}};
    return enqueuing;
  }
  std::vector<int> missing(int64_t sequence) override {
    if (nobody_answers) StuckDevice::hold();
    return sequence == 1 ? absent : std::vector<int>{};
  }
  std::vector<int> absent{1};
  bool nobody_answers = false;

 protected:
  void do_all_reduce(const Tensor&, Stream) override {}
  void do_reduce_scatter(const std::vector<Tensor>&, const Tensor&, Stream) override {}
  void do_all_gather(const std::vector<Tensor>&, Stream) override {}
  void do_all_to_all(const std::vector<Tensor>&, const std::vector<Tensor>&, Stream) override {}
  void do_broadcast(const Tensor&, int, Stream) override {}
  void do_send(const Tensor&, int, Stream) override {}
  void do_recv(const Tensor&, int, Stream) override {}
  void do_barrier() override {}
};

struct Rank {
  StuckDevice device;
  DeviceMarks marks{device};
  DeviceGroup group{marks};
  float value = 0;
  CallWatch::Options options{
      .groups = {&group}, .marks = &marks, .timeout = milliseconds(600), .title = [](int32_t n) {
        return n == 7 ? "reduce b3" : "";
      }};
  void call() {
    group.at(16, 7);
    group.all_reduce({&value, device::DType::f32, {1}});
  }
};

struct Ended {
  int code = -1;
  std::string said;
};

// Runs `body` in a process of its own; `meanwhile` disturbs that one.
Ended in_child(const std::function<void()>& body, const std::function<void(pid_t)>& meanwhile = {}) {
  int pipe[2];
  EXPECT_EQ(::pipe(pipe), 0);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::dup2(pipe[1], STDERR_FILENO);
    body();
    ::_exit(kUnended);
  }
  ::close(pipe[1]);
  if (meanwhile) meanwhile(child);
  Ended ended;
  char piece[512];
  for (ssize_t got = 0; (got = ::read(pipe[0], piece, sizeof(piece))) > 0;)
    ended.said.append(piece, static_cast<size_t>(got));
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

struct Case {
  const char* name;
  std::function<void(Rank&)> hang;  // the second call does not end
  std::string says;
};

TEST(CallWatch, EndsAProcessWhoseDeviceDoesNot) {
  const std::string call =
      "all_reduce of reduce b3 (call 1 of group data, step 17) did not finish within 0.6 s";
  const std::vector<Case> cases = {
      {"it waits in a call of the device",
       [](Rank& rank) {
         rank.device.passed = 3;  // the second call has begun
         rank.call(), rank.call();
         StuckDevice::hold();
       },
       call + ": rank 1 has not reached it"},
      {"it waits where it hands over the next call",
       [](Rank& rank) {
         rank.device.passed = 3;
         rank.device.blocks_at_record = 5;
         rank.call(), rank.call(), rank.call();
       },
       call + ": rank 1 has not reached it"},
      {"the driver answers nobody, so that it is not known what has begun",
       [](Rank& rank) {
         rank.device.passed = 2;
         rank.call();
         while (rank.group.next_call()) std::this_thread::yield();  // until it is known to have ended
         rank.device.driver_blocks = true;
         rank.call();
         StuckDevice::hold();
       },
       call + ": rank 1 has not reached it"},
      {"several are missing",
       [](Rank& rank) {
         rank.group.absent = {1, 2};
         rank.device.passed = 3;
         rank.call(), rank.call();
         StuckDevice::hold();
       },
       call + ": ranks 1 2 have not reached it"},
      {"all are there",
       [](Rank& rank) {
         rank.group.absent = {};
         rank.device.passed = 3;
         rank.call(), rank.call();
         StuckDevice::hold();
       },
       call + ": all ranks are in it, but none makes progress"},
      {"nobody can be asked",
       [](Rank& rank) {
         rank.group.nobody_answers = true;
         rank.device.passed = 3;
         rank.call(), rank.call();
         StuckDevice::hold();
       },
       call + ". To allow more time, raise parallel.timeout [LS0520]\n"},
  };
  for (const Case& one : cases) {
    const Ended ended = in_child([&] {
      Rank rank;
      rank.options.time_to_ask = milliseconds(300);
      const CallWatch watch(rank.options);
      one.hang(rank);
    });
    EXPECT_EQ(ended.code, 1) << one.name;
    EXPECT_EQ(ended.said.rfind("lockstep: ", 0), 0u) << one.name << ": " << ended.said;
    EXPECT_NE(ended.said.find(one.says), std::string::npos) << one.name << ": " << ended.said;
    EXPECT_NE(ended.said.find("[LS0520]\n"), std::string::npos) << one.name << ": " << ended.said;
  }
}

// Two calls are open, and both have ranks that did not come: the one that is late is told of.
TEST(CallWatch, NamesTheCallThatIsLateNotTheOneThatWaitsBehindIt) {
  const Ended ended = in_child([] {
    Rank rank;
    StuckDevice other_device;
    DeviceMarks other_marks{other_device};
    DeviceGroup other{other_marks, "pipe"};
    rank.options.groups = {&other, &rank.group};
    const CallWatch watch(rank.options);
    rank.device.passed = other_device.passed = 3;
    rank.call(), rank.call();
    std::this_thread::sleep_for(milliseconds(400));
    for (int k = 0; k < 2; ++k) other.all_reduce({&rank.value, device::DType::f32, {1}});
    StuckDevice::hold();
  });
  EXPECT_NE(ended.said.find("(call 1 of group data, step 17)"), std::string::npos) << ended.said;
}

TEST(CallWatch, AStepThatIsOneGraphIsWatchedAsAWhole) {
  const Ended ended = in_child([] {
    Rank rank;
    rank.marks.turn_off();
    CallWatch watch(rank.options);
    const CallWatch::Step step(&watch);
    StuckDevice::hold();
  });
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.said.find("a step did not finish within 0.6 s"), std::string::npos) << ended.said;
}

// Short calls and steps take longer than the timeout together, but none of them does.
TEST(CallWatch, LeavesAloneWhatGoesOn) {
  const Ended ended = in_child([] {
    Rank rank;
    CallWatch watch(rank.options);
    for (int k = 0; k < 16; ++k) {
      rank.call();
      rank.device.passed += 1;
      const CallWatch::Step step(&watch);
      std::this_thread::sleep_for(milliseconds(50));
      rank.device.passed += 1;
    }
  });
  EXPECT_EQ(ended.code, kUnended) << ended.said;
}

struct Times {
  OpenTimes::TimePoint now{std::chrono::hours(1)};
  OpenTimes times{milliseconds(600), now};
  const OpenTimes::Call one{this, 1}, other{this, 2};
  // What is found by looks a tick apart, for so long: how often slow, and whether late.
  std::pair<int, bool> pass(milliseconds time, const std::vector<OpenTimes::Call>& open) {
    int slow = 0;
    bool late = false;
    for (milliseconds gone{0}; gone < time; gone += times.tick()) {
      now += times.tick();
      const OpenTimes::Look found = times.look(open, now);
      slow += found.slow, late |= found.late.has_value();
    }
    return {slow, late};
  }
};

TEST(OpenTimes, ACallIsSlowOnceAndLateAtTheTimeout) {
  Times calls;
  EXPECT_EQ(calls.times.tick(), milliseconds(30));
  EXPECT_EQ(calls.pass(milliseconds(150), {calls.one}), std::pair(0, false));
  EXPECT_EQ(calls.pass(milliseconds(450), {calls.one}), std::pair(1, false));
  EXPECT_EQ(calls.pass(milliseconds(60), {calls.one}), std::pair(0, true));
}

// Many short calls take longer than the timeout, but none of them does.
TEST(OpenTimes, WhatGoesOnIsNeverLate) {
  Times calls;
  for (int64_t k = 0; k < 40; ++k)
    EXPECT_EQ(calls.pass(milliseconds(90), {{&calls, k}}), std::pair(0, false)) << k;
}

TEST(OpenTimes, TheLongestIsNamed) {
  Times calls;
  calls.pass(milliseconds(300), {calls.other});
  calls.pass(milliseconds(300), {calls.one, calls.other});
  const OpenTimes::Look found = calls.times.look({calls.one, calls.other}, calls.now += milliseconds(30));
  ASSERT_TRUE(found.late.has_value());
  EXPECT_EQ(*found.late, calls.other);
}

// A process that was stopped has not waited: the call may end right behind.
TEST(OpenTimes, TimeInWhichItWasStoppedDoesNotCount) {
  Times calls;
  calls.pass(milliseconds(120), {calls.one});
  calls.now += std::chrono::hours(1);
  EXPECT_FALSE(calls.times.look({calls.one}, calls.now).late.has_value());
  EXPECT_EQ(calls.pass(milliseconds(390), {calls.one}), std::pair(0, false));
  EXPECT_EQ(calls.pass(milliseconds(60), {calls.one}), std::pair(0, true));
}

}  // namespace
}  // namespace lockstep::comm
