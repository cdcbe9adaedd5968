#include "lockstep/launch/process/process.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/launch/process/descendants.h"

namespace lockstep::launch {
namespace {

TEST(Process, EndingsInWords) {
  EXPECT_EQ(describe_ending(0), "exit code 0");
  EXPECT_EQ(describe_ending(3 << 8), "exit code 3");
  EXPECT_EQ(describe_ending(SIGKILL), "killed by SIGKILL (9)");
  EXPECT_EQ(describe_ending(SIGSEGV | 0x80), "killed by SIGSEGV (11), core dumped");
  EXPECT_EQ(exit_code_of(SIGTERM), 143);
  EXPECT_EQ(exit_code_of(75 << 8), 75);
}

TEST(Process, SignalsByName) {
  for (const char* name : {"SIGTERM", "TERM", "15"}) EXPECT_EQ(signal_number(name), SIGTERM) << name;
  for (const char* name : {"", "SIG", "sigterm", "0", "-1", "65", "15x"})
    EXPECT_EQ(signal_number(name), 0) << name;
  EXPECT_EQ(signal_number("RTMIN+1"), SIGRTMIN + 1);
  for (int number = 1; number < NSIG; ++number) {
    const std::string name = signal_name(number);
    EXPECT_EQ(signal_number(name), name.starts_with("SIG") ? number : 0) << name;
  }
}

TEST(Process, IsTheSameAfterTravelling) {
  Process process;
  process.words = {"/bin/sh", "", std::string("a\nb\0c", 5)};
  process.environment = {"A=1", "B="};
  process.cpus = {0, 63};
  const Process back = unpack(pack(process));
  EXPECT_EQ(back.words, process.words);
  EXPECT_EQ(back.environment, process.environment);
  EXPECT_EQ(back.cpus, process.cpus);
  const std::string bytes = pack(process);
  for (size_t size = 0; size + 1 < bytes.size(); size += 3)
    EXPECT_THROW(unpack(bytes.substr(0, size)), base::Bug) << size;
}

TEST(Process, EnvironmentIsSetOnce) {
  std::vector<std::string> environment = {"RANK=7", "RANKS=1"};
  set_variable(environment, "RANK", "0");
  EXPECT_EQ(environment, (std::vector<std::string>{"RANKS=1", "RANK=0"}));
  EXPECT_TRUE(has_variable(environment, "RANK"));
  remove_variable(environment, "RANK");
  EXPECT_FALSE(has_variable(environment, "RANK"));
}

TEST(Descendants, LinesOfProc) {
  const ProcessLine plain = parse_process_line("42 (sleep) S 7 42 42 0 -1");
  EXPECT_EQ(plain.pid, 42);
  EXPECT_EQ(plain.parent, 7);
  EXPECT_EQ(plain.state, 'S');
  // A program may call itself what it likes.
  const ProcessLine odd = parse_process_line("43 (a) R 1 (b) Z 42 1 1");
  EXPECT_EQ(odd.parent, 42);
  EXPECT_EQ(odd.state, 'Z');
  for (const char* text : {"", "x", "42 (sleep", "42 (sleep)", "42 (sleep) S", "42 (sleep) S x"}) {
    EXPECT_EQ(parse_process_line(text).pid, 0) << text;
  }
}

}  // namespace
}  // namespace lockstep::launch
