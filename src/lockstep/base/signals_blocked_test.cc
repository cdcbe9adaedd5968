#include "lockstep/base/signals_blocked.h"

#include <gtest/gtest.h>

#include <thread>

namespace lockstep::base {
namespace {

bool blocks(int number) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, number) == 1;
}

TEST(SignalsBlocked, HoldsForThreadsThatAreStartedMeanwhile) {
  bool inside = false, afterwards = true;
  {
    const SignalsBlocked blocked;
    std::thread([&] { inside = blocks(SIGTERM) && blocks(SIGINT) && blocks(SIGUSR1); }).join();
  }
  std::thread([&] { afterwards = blocks(SIGTERM); }).join();
  EXPECT_TRUE(inside);
  EXPECT_FALSE(afterwards);
  EXPECT_FALSE(blocks(SIGTERM));
}

}  // namespace
}  // namespace lockstep::base
