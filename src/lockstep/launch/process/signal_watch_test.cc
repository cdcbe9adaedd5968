#include "lockstep/launch/process/signal_watch.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace lockstep::launch {
namespace {

TEST(SignalWatch, ASignalIsTakenOnce) {
  SignalWatch watch({SIGUSR1, SIGUSR2});
  EXPECT_EQ(watch.take(), 0);
  ::raise(SIGUSR2);
  EXPECT_EQ(watch.take(), SIGUSR2);
  EXPECT_EQ(watch.take(), 0);
}

TEST(SignalWatch, WhatComesAtTheVeryEndDoesNotKill) {
  EXPECT_EXIT(
      {
        {
          const SignalWatch watch({SIGUSR1});
          ::raise(SIGUSR1);
        }
        std::_Exit(75);
      },
      testing::ExitedWithCode(75), "");
}

}  // namespace
}  // namespace lockstep::launch
