#include "lockstep/base/process_birth.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::base {
namespace {

TEST(ProcessBirth, TellsWhoseNumberItIs) {
  const ProcessBirth mine = birth_of(::getpid());
  ASSERT_GT(mine.ticks, 0u);
  EXPECT_EQ(birth_of(::getpid()), mine);
  EXPECT_TRUE(still_lives(::getpid(), mine));
  EXPECT_TRUE(still_lives(::getpid(), {})) << "an older version wrote no birth down";
  // Another process that has this number by now, in this boot or another.
  EXPECT_FALSE(still_lives(::getpid(), {mine.boot, mine.ticks + 1}));
  EXPECT_FALSE(still_lives(::getpid(), {mine.boot + 1, mine.ticks}));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(still_lives(child, {}));
  EXPECT_EQ(birth_of(child), ProcessBirth{});
  EXPECT_FALSE(still_lives(0, {}));
  EXPECT_FALSE(still_lives(-1, {})) << "kill(-1) would ask all processes";
}

TEST(ProcessBirth, Text) {
  const ProcessBirth mine = birth_of(::getpid());
  EXPECT_EQ(ProcessBirth::from_text(mine.to_text()), mine);
  EXPECT_EQ(ProcessBirth{}.to_text(), "");
  for (const char* text : {"", ":", "x:1", "1", "1:", "1:x", "1:-1", "g123:4"})
    EXPECT_EQ(ProcessBirth::from_text(text), ProcessBirth{}) << text;
}

}  // namespace
}  // namespace lockstep::base
