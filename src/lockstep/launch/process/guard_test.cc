// The guard against programs that do not want to end. A pipe that all of them hold tells when the last has
// gone.
#include "lockstep/launch/process/guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/launch/process/descendants.h"

namespace lockstep::launch {
namespace {

// Programs that leave others behind; each prints a line when all of its processes run.
const char* const kTroublemakers[] = {
    "echo ready; sleep 1000",
    "sleep 1000 & sleep 1000 & echo ready; wait",
    "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; sleep 0.1; echo ready; sleep 1000",
    "trap '' TERM; sh -c 'trap \"\" TERM HUP; sleep 1000; sleep 1000' & echo ready; sleep 1000; sleep 1000",
    "(setsid sleep 1000 &); echo ready",  // ends at once, its daemon does not
    "echo ready; kill -STOP $$; sleep 1000",
};

struct Pipe {
  int ends[2];
  Pipe() { EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0); }
  ~Pipe() {
    ::close(ends[0]);
    close_write_end();
  }
  void close_write_end() {
    if (ends[1] >= 0) ::close(ends[1]);
    ends[1] = -1;
  }
  // The text until `stop` is in it or the last writer has gone; within ten seconds.
  std::string read_until(const std::string& stop, bool* ended = nullptr) {
    std::string text;
    const int64_t deadline = base::monotonic_ns() + 10'000'000'000;
    while (base::monotonic_ns() < deadline) {
      pollfd ready{ends[0], POLLIN, 0};
      if (::poll(&ready, 1, 100) <= 0) continue;
      char bytes[256];
      const ssize_t got = ::read(ends[0], bytes, sizeof bytes);
      if (got <= 0) {
        if (ended) *ended = true;
        break;
      }
      text.append(bytes, static_cast<size_t>(got));
      if (!stop.empty() && text.find(stop) != std::string::npos) break;
    }
    return text;
  }
};

Process shell(const std::string& script, int out) {
  Process process;
  process.words = {"/bin/sh", "-c", script};
  process.environment = {"PATH=/usr/bin:/bin"};
  process.out = out;
  return process;
}

void wait_until_all_gone(Guard& guard) {
  const int64_t deadline = base::monotonic_ns() + 10'000'000'000;
  while (base::monotonic_ns() < deadline) {
    pollfd ready{guard.descriptor(), POLLIN, 0};
    ::poll(&ready, 1, 100);
    if (guard.take().all_gone) return;
  }
  ADD_FAILURE() << "something still runs below the guard";
}

TEST(Guard, ARankRunsOnItsProcessorsOrSaysWhyNot) {
  Guard guard(Duration(300));
  Pipe bound, refused;
  Process process = shell("grep Cpus_allowed_list /proc/self/status", bound.ends[1]);
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) --last;
  process.cpus = {last};
  guard.start(process);
  bound.close_write_end();
  EXPECT_EQ(bound.read_until(""), "Cpus_allowed_list:\t" + std::to_string(last) + "\n");
  process = shell("echo unbound", -1);
  process.err = refused.ends[1];
  process.cpus = {4000, 4001};  // beyond what a cpu_set_t holds, and beyond this machine
  guard.start(process);
  refused.close_write_end();
  const std::string said = refused.read_until("");
  EXPECT_NE(said.find("cannot pin to processors 4000-4001"), std::string::npos) << said;
  EXPECT_NE(said.find("LS0432"), std::string::npos) << said;
}

TEST(Guard, NothingOutlivesALauncherThatIsKilled) {
  for (const char* script : kTroublemakers) {
    Pipe pipe;
    const pid_t launcher = ::fork();
    if (launcher == 0) {
      Guard guard(Duration(300));
      guard.start(shell(script, pipe.ends[1]));
      pipe.close_write_end();
      for (;;) ::pause();
    }
    pipe.close_write_end();
    EXPECT_NE(pipe.read_until("ready").find("ready"), std::string::npos) << script;
    ::kill(launcher, SIGKILL);
    ::waitpid(launcher, nullptr, 0);
    bool ended = false;
    pipe.read_until("", &ended);
    EXPECT_TRUE(ended) << script;
  }
}

TEST(Guard, RemovesFoldersOfALauncherThatIsKilled) {
  base::TemporaryFolder folder;
  folder.write("scratch/deep/file", "x");
  Pipe pipe;
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    Guard guard(Duration(300));
    guard.remove_at_end(folder.path() + "/scratch");
    guard.start(shell("echo ready; sleep 1000", pipe.ends[1]));
    pipe.close_write_end();
    for (;;) ::pause();
  }
  pipe.close_write_end();
  pipe.read_until("ready");
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/scratch"));
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  const int64_t deadline = base::monotonic_ns() + 10'000'000'000;
  while (std::filesystem::exists(folder.path() + "/scratch") && base::monotonic_ns() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/scratch"));
}

TEST(Guard, NothingOutlivesALauncherThatIsKilledTogetherWithItsGuard) {
  for (const char* script : kTroublemakers) {
    base::TemporaryFolder folder;
    folder.write("scratch/deep/file", "x");
    Pipe pipe, told;
    const pid_t launcher = ::fork();
    if (launcher == 0) {
      Guard guard(Duration(300));
      guard.remove_at_end(folder.path() + "/scratch");
      guard.start(shell(script, pipe.ends[1]));
      pipe.close_write_end();
      const std::string number = std::to_string(guard.pid()) + "\n";
      if (::write(told.ends[1], number.data(), number.size()) < 0) ::_exit(1);
      for (;;) ::pause();
    }
    pipe.close_write_end(), told.close_write_end();
    EXPECT_NE(pipe.read_until("ready").find("ready"), std::string::npos) << script;
    const pid_t guard = std::atoi(told.read_until("\n").c_str());
    ASSERT_GT(guard, 1);
    ::kill(guard, SIGSTOP);  // so that it does nothing about the launcher's end
    ::kill(launcher, SIGKILL);
    ::kill(guard, SIGKILL);
    ::waitpid(launcher, nullptr, 0);
    bool ended = false;
    pipe.read_until("", &ended);
    EXPECT_TRUE(ended) << script;
    const int64_t deadline = base::monotonic_ns() + 10'000'000'000;
    while (std::filesystem::exists(folder.path() + "/scratch") && base::monotonic_ns() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(std::filesystem::exists(folder.path() + "/scratch")) << script;
  }
}

TEST(Guard, SaysWhenItMayNotOpenMoreFiles) {
  Guard guard(Duration(300));
  guard.start(shell("exit 0", -1));  // it has opened what it needs
  const rlimit few{6, 6};
  ASSERT_EQ(::prlimit(guard.pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  Process process = shell("exit 0", STDOUT_FILENO);
  process.in = STDIN_FILENO, process.err = STDERR_FILENO;
  try {
    guard.start(process);
    ADD_FAILURE() << "started with half of its files";
  } catch (const base::IoError& error) {
    EXPECT_NE(std::string(error.what()).find("Too many open files"), std::string::npos) << error.what();
  }
}

TEST(Guard, EndsEverythingWhenAsked) {
  for (const char* script : kTroublemakers) {
    Pipe pipe;
    Guard guard(Duration(300));
    guard.start(shell(script, pipe.ends[1]));
    pipe.close_write_end();
    pipe.read_until("ready");
    guard.end_all(Duration(300));
    wait_until_all_gone(guard);
    bool ended = false;
    pipe.read_until("", &ended);
    EXPECT_TRUE(ended) << script;
  }
}

TEST(Guard, WhenItIsKilledTheLauncherEndsTheRest) {
  Pipe pipe;
  Guard guard(Duration(300));
  guard.start(shell(kTroublemakers[2], pipe.ends[1]));
  pipe.close_write_end();
  pipe.read_until("ready");
  ::kill(guard.pid(), SIGKILL);
  pollfd ready{guard.descriptor(), POLLIN, 0};
  ::poll(&ready, 1, 5000);
  EXPECT_TRUE(guard.take().lost);
  bool ended = false;
  pipe.read_until("", &ended);
  EXPECT_TRUE(ended);
}

TEST(Guard, ReportsHowEachChildEnded) {
  Guard guard(Duration(300));
  const pid_t three = guard.start(shell("exit 3", -1)), killed = guard.start(shell("kill -SEGV $$", -1));
  const pid_t missing = guard.start([] {
    Process process = shell("", -1);
    process.words = {"/no/such/program"};
    return process;
  }());
  std::map<pid_t, int> endings;
  const int64_t deadline = base::monotonic_ns() + 10'000'000'000;
  while (endings.size() < 3 && base::monotonic_ns() < deadline) {
    for (const Ended& ended : guard.take().ended) endings[ended.pid] = ended.status;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(exit_code_of(endings[three]), 3);
  EXPECT_EQ(exit_code_of(endings[killed]), 128 + SIGSEGV);
  EXPECT_EQ(exit_code_of(endings[missing]), 127);
}

TEST(Guard, KeepsNothingOfTheLaunchersFilesOpen) {
  Pipe pipe;
  Guard guard(Duration(300));
  guard.start(shell("sleep 1000", -1));
  pipe.close_write_end();  // the guard and the rank must not hold it either
  bool ended = false;
  pipe.read_until("", &ended);
  EXPECT_TRUE(ended);
}

TEST(Guard, ChildrenBeginWithDefaultSignals) {
  Pipe pipe;
  ::signal(SIGPIPE, SIG_IGN);
  Guard guard(Duration(300));
  guard.start(shell("grep -E '^Sig(Blk|Ign)' /proc/self/status", pipe.ends[1]));
  pipe.close_write_end();
  const std::string text = pipe.read_until("");
  EXPECT_NE(text.find("SigBlk:\t0000000000000000"), std::string::npos) << text;
  EXPECT_NE(text.find("SigIgn:\t0000000000000000"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep::launch
