#include "lockstep/data/formats/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::data {
namespace {

TEST(ParallelFor, CallsEveryIndexOnce) {
  for (const int64_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
    parallel_for(count, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
    for (const auto& n : calls) EXPECT_EQ(n, 1);
  }
}

// Whichever of two failing neighbours is the slower one.
TEST(ParallelFor, RethrowsTheFirstError) {
  for (const int64_t slow : {40, 41}) {
    try {
      parallel_for(100, [&](int64_t i) {
        if (i == slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (i >= 40) throw std::runtime_error(std::to_string(i));
      });
      FAIL() << "no error";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "40");
    }
  }
}

}  // namespace
}  // namespace lockstep::data
