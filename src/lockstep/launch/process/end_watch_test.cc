#include "lockstep/launch/process/end_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "lockstep/base/signals_blocked.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

void take(int number) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  const timespec none{};
  ::sigtimedwait(&set, nullptr, &none);
}

// How long each signal waits counts, not how long there have been some.
TEST(EndWatch, SignalsThatAreTakenInTimeEndNothing) {
  const base::SignalsBlocked blocked;
  std::atomic<int> ended{-1};
  EndWatch watch({SIGUSR2}, Duration(500), [&](int number) { ended = number; });
  for (int k = 0; k < 2; ++k) {
    ::kill(::getpid(), SIGUSR2);
    std::this_thread::sleep_for(150ms);
    take(SIGUSR2);
    std::this_thread::sleep_for(500ms);
  }
  EXPECT_EQ(ended, -1);
  ::kill(::getpid(), SIGUSR2);
  for (int k = 0; k < 500 && ended < 0; ++k) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(ended, SIGUSR2) << "nobody took it";
  take(SIGUSR2);
}

TEST(EndWatch, WhoMustHaveEndedDoes) {
  const base::SignalsBlocked blocked;
  std::atomic<int> ended{-1};
  EndWatch watch({SIGUSR2}, Duration(60'000), [&](int number) { ended = number; });
  watch.end_by(EndWatch::Clock::now() + 200ms);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(ended, -1);
  for (int k = 0; k < 500 && ended < 0; ++k) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace lockstep::launch
