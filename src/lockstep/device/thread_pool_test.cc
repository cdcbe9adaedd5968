#include "lockstep/device/thread_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace lockstep::device {
namespace {

TEST(ThreadPool, RunsEveryItemOnceAtAnyNumberOfThreads) {
  const int before = thread_count();
  for (const int threads : {1, 2, 3, 7}) {
    set_thread_count(threads);
    EXPECT_EQ(thread_count(), threads);
    for (int round = 0; round < 2000; ++round) {
      const int64_t items = round % 2 == 0 ? 2 : round % 40;
      std::vector<std::atomic<int>> hits(static_cast<size_t>(items));
      const int lanes = 1 + round % threads;
      run_items(items, lanes, [&](int64_t item, int lane) {
        EXPECT_LT(lane, lanes);
        ++hits[static_cast<size_t>(item)];
      });
      for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
  set_thread_count(before);
}

TEST(ThreadPool, ReadsOpenmpsVariable) {
  struct Row {
    const char* text;
    int threads;  // 0: not a number of threads
  };
  for (const Row& row : std::initializer_list<Row>{{"4", 4},
                                                   {" 4 ", 4},
                                                   {"4,2", 4},
                                                   {"4096", 4096},
                                                   {"4097", 0},
                                                   {"99999999999", 0},
                                                   {"0", 0},
                                                   {"-3", 0},
                                                   {"3x", 0},
                                                   {"many", 0},
                                                   {"", 0},
                                                   {",2", 0}}) {
    EXPECT_EQ(parse_threads(row.text).value_or(0), row.threads) << row.text;
  }
}

TEST(ThreadPool, ALaneIsHeldByOneThreadAtATime) {
  std::vector<std::atomic<int>> held(static_cast<size_t>(thread_count()));
  for (int round = 0; round < 50; ++round) {
    run_items(64, thread_count(), [&](int64_t, int lane) {
      ASSERT_EQ(held[static_cast<size_t>(lane)].fetch_add(1), 0);
      held[static_cast<size_t>(lane)].fetch_sub(1);
    });
  }
}

TEST(ThreadPool, CallersAtTheSameTimeBothFinish) {
  std::atomic<int64_t> total{0};
  const auto caller = [&] {
    for (int round = 0; round < 200; ++round)
      run_items(10, thread_count(), [&](int64_t item, int) { total += item; });
  };
  std::thread other(caller);
  caller();
  other.join();
  EXPECT_EQ(total.load(), 2 * 200 * 45);
}

// Jobs with pauses between and inside them, so that both sides fall asleep and must be woken, many times.
TEST(ThreadPool, NoWakeIsLost) {
  const int before = thread_count();
  set_thread_count(3);
  std::atomic<int64_t> total{0};
  for (int round = 0; round < 3000; ++round) {
    if (round % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(120));
    run_items(4, 3, [&](int64_t item, int lane) {
      if (round % 5 == 0 && lane > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
      total += item;
    });
  }
  EXPECT_EQ(total.load(), 3000 * 6);
  set_thread_count(before);
}

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// A helper that has nothing to do takes nothing from others: it looked for the next job for a millisecond
// once, and two threads were slower than one wherever another program ran.
TEST(ThreadPool, IdleHelpersSleepSoon) {
  const int before = thread_count();
  constexpr int kRounds = 20, kJobs = 5;
  double least = 1;  // where the machine is busy, some rounds may look on for longer
  for (int round = 0; round < kRounds; ++round) {
    set_thread_count(3);
    const double began = cpu_seconds();
    for (int job = 0; job < kJobs; ++job) {
      run_items(3, 3, [](int64_t, int) {});
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    least = std::min(least, (cpu_seconds() - began) / kJobs);
  }
  EXPECT_LT(least, 0.5e-3);  // two helpers of 0.05 ms each, and waking them
  set_thread_count(before);
}

TEST(ThreadPool, AJobInsideAJobRunsOnItsOwnThread) {
  std::atomic<int> count{0};
  run_items(8, thread_count(), [&](int64_t, int) {
    run_items(5, thread_count(), [&](int64_t, int lane) {
      EXPECT_EQ(lane, 0);
      ++count;
    });
  });
  EXPECT_EQ(count.load(), 40);
}

}  // namespace
}  // namespace lockstep::device
