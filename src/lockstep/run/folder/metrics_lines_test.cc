#include "lockstep/run/folder/metrics_lines.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/file.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::run {
namespace {

std::string loss(int step) { return "{\"step\":" + std::to_string(step) + ",\"loss\":1.5}\n"; }
std::string eval(int step) { return "{\"step\":" + std::to_string(step) + ",\"eval_loss\":1.5}\n"; }

TEST(MetricsLines, WhatWillBeDoneAgainComesOffTheEnd) {
  const std::string long_line(200'000, 'x'), null = "{\"step\":null}\n",
                                             words = "\"step\"\n[1,2]\nnot json\n";
  const struct {
    const char* name;
    std::string before;
    int64_t step;
    std::string after;
    int64_t last;
  } rows[] = {
      {"empty", "", 5, "", 0},
      {"nothing to cut", loss(1) + loss(2), 2, loss(1) + loss(2), 2},
      {"two lines too many", loss(1) + loss(2) + eval(2) + loss(3) + loss(4), 2, loss(1) + loss(2) + eval(2),
       2},
      {"from the beginning", loss(1) + eval(1) + loss(2), 0, "", 0},
      {"an evaluation came last", loss(1) + loss(2) + eval(2), 2, loss(1) + loss(2) + eval(2), 2},
      {"an evaluation of a step whose loss was lost", loss(1) + loss(2) + eval(3), 3,
       loss(1) + loss(2) + eval(3), 2},
      {"a torn end", loss(1) + loss(2) + "{\"step\":3,", 1, loss(1), 1},
      {"lines of nobody's", words + loss(1) + null + loss(2) + words, 1, words + loss(1) + null, 1},
      {"lines of nobody's at the end", loss(1) + null + words, 1, loss(1) + null + words, 1},
      {"a line longer than any", loss(1) + long_line + "\n" + loss(2), 1, loss(1) + long_line + "\n", 1},
      {"steps are missing", loss(1) + loss(2), 7, loss(1) + loss(2), 2},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const base::TemporaryFolder folder;
    const std::string path = folder.write("metrics.jsonl", row.before);
    EXPECT_EQ(cut_lines_after(path, row.step), row.last);
    EXPECT_EQ(base::read_file(path), row.after);
  }
  EXPECT_EQ(cut_lines_after("nowhere/metrics.jsonl", 3), 0);
}

TEST(MetricsLines, AFileOfAnySizeIsCutInPlace) {
  const base::TemporaryFolder folder;
  const std::string path = folder.write("metrics.jsonl", loss(1));
  const int64_t large = (int64_t{1} << 30) + 4096;  // sparse: a line of zeros
  ASSERT_EQ(::truncate(path.c_str(), large), 0);
  std::ofstream(path, std::ios::app) << "\n" << loss(2) << loss(3);
  EXPECT_EQ(cut_lines_after(path, 1), 1);
  EXPECT_EQ(std::filesystem::file_size(path), static_cast<size_t>(large) + 1);
}

TEST(MetricsLines, WhatCannotBeReadIsNotChanged) {
  if (::geteuid() == 0)
    GTEST_SKIP() << "root may read everything; cli/train/resume_test.cc tries it without that right";
  const base::TemporaryFolder folder;
  const std::string path = folder.write("metrics.jsonl", loss(1));
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  base::refusal(818, [&] { cut_lines_after(path, 1); });
}

}  // namespace
}  // namespace lockstep::run
