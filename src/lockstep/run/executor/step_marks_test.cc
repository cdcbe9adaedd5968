#include "lockstep/run/executor/step_marks.h"

#include <gtest/gtest.h>

#include "lockstep/base/temporary_folder.h"

namespace lockstep::run {
namespace {

using State = base::RingEntry::State;

constexpr size_t kCount = 20;

class StepMarksTest : public ::testing::Test {
 protected:
  StepMarksTest() : device_(device::open({})), ring_(folder_.path() + "/ring", {}), marks_(*device_, ring_) {
    for (size_t n = 0; n < kCount; ++n) {
      marks_.add(n, program::Lane::compute, {.instruction = static_cast<int32_t>(n)});
    }
  }
  // The device runs up to that many instructions: on the CPU a mark is written at once.
  void run(size_t from, size_t to) {
    for (size_t n = from; n < to; ++n) marks_.mark(n, nullptr);
  }
  std::vector<State> states(int64_t step) {
    std::vector<State> of_step;
    for (const base::RingEntry& entry : base::RingReader(folder_.path() + "/ring").entries()) {
      if (entry.stamp.step == step) of_step.push_back(entry.state());
    }
    return of_step;
  }
  static std::vector<State> expected(size_t finished) {
    std::vector<State> all(kCount, State::enqueued);
    for (size_t n = 0; n < finished; ++n) all[n] = State::finished;
    if (finished < kCount) all[finished] = State::started;
    return all;
  }

  base::TemporaryFolder folder_;
  std::unique_ptr<device::Device> device_;
  base::RingWriter ring_;
  StepMarks marks_;
};

TEST_F(StepMarksTest, SayHowFarTheDeviceIs) {
  marks_.begin(0, 5);
  marks_.all_enqueued();
  EXPECT_EQ(states(5), std::vector<State>(kCount, State::enqueued));
  run(0, 7);
  marks_.look();
  EXPECT_EQ(states(5), expected(0));  // fewer than are marked at a time
  run(7, 17);
  marks_.look();
  EXPECT_EQ(states(5), expected(16));
  run(17, kCount);
  marks_.look();
  EXPECT_EQ(states(5), expected(kCount));
}

TEST_F(StepMarksTest, TwoStepsOneBehindTheOther) {
  marks_.begin(0, 1);
  marks_.all_enqueued();
  run(0, 8);
  marks_.begin(1, 2);
  marks_.all_enqueued();
  marks_.look();
  EXPECT_EQ(states(1), expected(8));
  EXPECT_EQ(states(2), std::vector<State>(kCount, State::enqueued));  // it waits for the other
}

TEST_F(StepMarksTest, ASlotServesAgain) {
  for (const int64_t step : {1, 3}) {
    marks_.begin(0, step);
    for (size_t n = 0; n < kCount; ++n) {
      marks_.enqueued(n);
      marks_.mark(n, nullptr);
    }
    marks_.look();
    EXPECT_EQ(states(step), expected(kCount)) << step;
  }
}

}  // namespace
}  // namespace lockstep::run
