#include "lockstep/run/folder/patient_lines.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "lockstep/base/temporary_folder.h"

namespace lockstep::run {
namespace {

// Files may not grow beyond so many bytes while it lives.
class Full {
 public:
  explicit Full(rlim_t bytes) {
    was_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit now{bytes, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~Full() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, was_);
  }
  Full(const Full&) = delete;
  Full& operator=(const Full&) = delete;

 private:
  rlimit limit_{};
  void (*was_)(int) = nullptr;
};

TEST(PatientLines, WaitForRoomAndKeepTheirOrder) {
  const base::TemporaryFolder folder;
  const std::string path = folder.path() + "/lines";
  PatientLines lines(path);
  EXPECT_EQ(lines.write("one"), "");
  {
    const Full disk(9);  // room for half of the next
    EXPECT_NE(lines.write("twenty").find("lines cannot be written"), std::string::npos);
    EXPECT_EQ(base::read_file(path), "one\n");  // no half lines for those who read along
    EXPECT_EQ(lines.write("three"), "");        // told once
    EXPECT_EQ(lines.waiting(), 2u);
  }
  EXPECT_EQ(lines.write("four"), "");
  EXPECT_EQ(base::read_file(path), "one\ntwenty\nthree\nfour\n");
  const Full disk(25);
  EXPECT_NE(lines.write("and again"), "");  // another time is told again
}

TEST(PatientLines, TheOldestOfTooManyAreGivenUpAndCounted) {
  const base::TemporaryFolder folder;
  PatientLines lines(folder.path() + "/lines");
  constexpr size_t kMost = 100'000, kMore = 7;
  {
    const Full disk(0);
    for (size_t k = 0; k < kMost + kMore; ++k) lines.write(std::to_string(k));
    EXPECT_EQ(lines.waiting(), kMost);
    EXPECT_EQ(lines.given_up(), kMore);
  }
  lines.write("last");
  EXPECT_EQ(lines.waiting(), 0u);
  EXPECT_TRUE(base::read_file(folder.path() + "/lines").starts_with("8\n9\n"));
}

}  // namespace
}  // namespace lockstep::run
