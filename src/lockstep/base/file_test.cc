#include "lockstep/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::base {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(File, WritesAndReadsBack) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/a";
  const std::string text = std::string("zero \0 byte", 11) + std::string(200'000, 'x');
  write_file_durable(path, "old");
  write_file_durable(path, text);
  EXPECT_EQ(read_file(path), text);
  // Nothing is left beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(File, ADeviceStaysOne) {
  TemporaryFolder folder;
  for (const char* device : {"/dev/null", "/dev/full"}) {
    const std::string path = folder.path() + "/" + std::filesystem::path(device).filename().string();
    std::filesystem::create_symlink(device, path);
    if (device == std::string("/dev/full")) {
      EXPECT_TRUE(has(refusal(802, [&] { write_file_durable(path, "text"); }), "full"));
    } else {
      write_file_durable(path, "text");
    }
    EXPECT_TRUE(std::filesystem::is_symlink(path)) << device;
    std::filesystem::remove(path);
  }
}

TEST(File, ReadingRefusesWithTheCause) {
  TemporaryFolder folder;
  const std::string path = folder.write("a", "12345");
  EXPECT_TRUE(
      has(refusal(801, [&] { read_file(folder.path() + "/no"); }), "/no cannot be read: no such file"));
  EXPECT_TRUE(has(refusal(801, [&] { read_file(folder.path()); }), "it is a folder"));
  EXPECT_TRUE(has(refusal(801, [&] { read_file(path, 4); }), "larger than 4 B"));
  EXPECT_TRUE(has(refusal(801, [&] { read_file("/dev/zero", 1000); }), "larger than"));
  EXPECT_EQ(read_file(path, 5), "12345");
}

TEST(File, PipesAreReadIfSomebodyWritesAndNeverWrittenTo) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(has(refusal(801, [&] { read_file(path); }), "it is a pipe without a writer"));
  EXPECT_TRUE(has(refusal(802, [&] { LineWriter writer(path); }), "it is a pipe"));
  std::thread slow([&] {
    std::ofstream out(path);  // opens once it is read
    for (const char* part : {"two ", "parts"}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      out << part << std::flush;
    }
  });
  EXPECT_EQ(read_file(path), "two parts");
  slow.join();
}

TEST(File, WritingRefusesWithTheCause) {
  TemporaryFolder folder;
  folder.write("file", "");
  EXPECT_TRUE(
      has(refusal(802, [&] { write_file_durable(folder.path() + "/no/a", ""); }), "no such file or folder"));
  EXPECT_TRUE(has(refusal(802, [&] { write_file_durable(folder.path() + "/file/a", ""); }), "not a folder"));
  EXPECT_TRUE(has(refusal(802, [] { LineWriter("/dev/full").write("x"); }), "no space left"));
}

TEST(File, MakeFoldersNamesTheFirstThatFails) {
  TemporaryFolder folder;
  make_folders(folder.path() + "/a/b/c");
  make_folders(folder.path() + "/a/b/c/");  // again is fine
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() + "/a/b/c"));
  folder.write("file", "");
  const std::string text = refusal(803, [&] { make_folders(folder.path() + "/file/x/y"); });
  EXPECT_TRUE(has(text, "/file: a file with that name exists")) << text;
}

TEST(LineWriter, AppendsAndCutsATornLine) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/lines";
  LineWriter(path).write("one");
  folder.write("lines", "one\ntwo\n{\"step\": 3, \"lo" + std::string(10'000, 's'));
  LineWriter writer(path);
  EXPECT_EQ(read_file(path), "one\ntwo\n");
  writer.write("three");
  EXPECT_EQ(read_file(path), "one\ntwo\nthree\n");  // before it is closed
  folder.write("torn", "no end");
  LineWriter torn(folder.path() + "/torn");
  EXPECT_EQ(read_file(folder.path() + "/torn"), "");
}

TEST(FolderLock, SaysWhoHoldsItAndIsFreedByAnyDeath) {
  TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);  // if the parent dies first
    const FolderLock lock(folder.path());
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string text = refusal(804, [&] { FolderLock lock(folder.path()); });
  EXPECT_TRUE(has(text, "in use by process " + std::to_string(child) + " on " + host_name())) << text;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  auto lock = std::make_unique<FolderLock>(folder.path());
  refusal(804, [&] { FolderLock second(folder.path()); });
  lock.reset();
  FolderLock third(folder.path());
}

}  // namespace
}  // namespace lockstep::base
