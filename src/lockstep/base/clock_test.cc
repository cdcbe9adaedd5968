#include "lockstep/base/clock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <regex>
#include <thread>

namespace lockstep::base {
namespace {

TEST(Clock, MonotonicNeverGoesBack) {
  int64_t last = monotonic_ns();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = monotonic_ns();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Clock, ProcessStartCountsForward) {
  const double before = seconds_since_process_start();
  const int64_t began = monotonic_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const double passed = static_cast<double>(monotonic_ns() - began) * 1e-9;
  EXPECT_GT(before, 0);
  EXPECT_LT(before, 3600);
  EXPECT_NEAR(seconds_since_process_start() - before, passed, 0.02);
}

TEST(Clock, UtcTimestamps) {
  EXPECT_EQ(utc_timestamp(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(utc_timestamp(1709210096789), "2024-02-29T12:34:56.789Z");
  EXPECT_EQ(utc_timestamp(-1), "1969-12-31T23:59:59.999Z");
  EXPECT_TRUE(
      std::regex_match(utc_timestamp(), std::regex("20\\d\\d-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z")));
}

}  // namespace
}  // namespace lockstep::base
