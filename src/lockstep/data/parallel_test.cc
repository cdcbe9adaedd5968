#include "lockstep/data/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
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

TEST(ParallelFor, RethrowsTheFirstError) {
  for (int round = 0; round < 200; ++round) {
    try {
      parallel_for(100, [](int64_t i) {
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
