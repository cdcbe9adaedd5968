#include "lockstep/launch/process/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::launch {
namespace {

std::string take_all(int descriptor) {
  std::string text(4 << 20, '\0');
  const ssize_t got = ::read(descriptor, text.data(), text.size());
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

TEST(Console, DoesNotWaitForAReaderThatPauses) {
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  std::string sent, seen;
  {
    Console console(pipe[1]);
    EXPECT_FALSE(::fcntl(pipe[1], F_GETFL) & O_NONBLOCK) << "others write there too";
    for (int line = 0; !console.full(); ++line) {
      const std::string text = "line " + std::to_string(line) + "\n";
      console.add(text.data(), text.size());
      sent += text;
    }
    EXPECT_TRUE(console.waits());
    while (console.waits()) {
      seen += take_all(pipe[0]);
      console.flush();
    }
  }
  seen += take_all(pipe[0]);
  EXPECT_EQ(seen, sent);
  ::close(pipe[0]), ::close(pipe[1]);
}

TEST(Console, DropsWhatNobodyReads) {
  ::signal(SIGPIPE, SIG_IGN);
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  Console console(pipe[1]);
  ::close(pipe[0]);
  const std::string text(1 << 20, 'x');
  console.add(text.data(), text.size());
  EXPECT_FALSE(console.waits());
  ::close(pipe[1]);
}

TEST(Console, KeepsItsPlaceInAFile) {
  base::TemporaryFolder folder;
  const std::string path = folder.path() + "/out";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::write(file, "a", 1), 1);
  const std::string text(100'000, 'b');
  Console(file).add(text.data(), text.size());
  EXPECT_EQ(base::read_file(path), "a" + text);
  ::close(file);
}

}  // namespace
}  // namespace lockstep::launch
