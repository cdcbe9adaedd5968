#include "lockstep/launch/process/disk_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {
namespace {

std::string own_pid(const DiskCall&) { return std::to_string(::getpid()); }

std::string append(const DiskCall& call) {
  for (const std::string& word : call.words) {
    if (::write(call.descriptor, word.data(), word.size()) != static_cast<ssize_t>(word.size())) return "no";
  }
  return "";
}

std::string fail(const DiskCall& call) { throw std::runtime_error("cannot " + call.words.at(0)); }

TEST(DiskProcess, WorksElsewhereAndAnswers) {
  DiskProcess disk;
  ASSERT_GT(disk.pid(), 0);
  EXPECT_EQ(disk.call(own_pid, {}), std::to_string(disk.pid()));
  const base::Descriptor file(::memfd_create("test", MFD_CLOEXEC));
  const std::string large(300'000, 'x');
  EXPECT_EQ(disk.call(append, {.words = {"a", "", large}, .descriptor = file.number}), "");
  EXPECT_EQ(::lseek(file.number, 0, SEEK_END), 300'001);
  EXPECT_EQ(disk.call(fail, {.words = {"write"}}), "cannot write");
  EXPECT_EQ(disk.call(own_pid, {}), std::to_string(disk.pid())) << "it has outlived the failure";
}

TEST(DiskProcess, WhereItWasKilledTheCallerWorks) {
  DiskProcess disk;
  ::kill(disk.pid(), SIGKILL);
  EXPECT_EQ(disk.call(own_pid, {}), std::to_string(::getpid()));
  EXPECT_EQ(disk.call(fail, {.words = {"read"}}), "cannot read");
}

// Words: a file that is made once the caller has gone.
std::string outlive_caller(const DiskCall& call) {
  while (!call.abandoned()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::ofstream(call.words[0]) << "alone";
  return "";
}

TEST(DiskProcess, ACallThatDoesNotEndLetsItsCallerEnd) {
  const base::TemporaryFolder folder;
  const std::string made = folder.path() + "/made";
  const pid_t caller = ::fork();
  if (caller == 0) {
    DiskProcess disk;
    std::thread([&] { disk.call(outlive_caller, {.words = {made}}); }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(caller, &status, 0), caller);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  for (int k = 0; k < 2000 && !std::filesystem::exists(made); ++k)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(std::filesystem::exists(made)) << "nobody told it that its caller has gone";
}

}  // namespace
}  // namespace lockstep::launch
