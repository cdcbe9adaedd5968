#include "lockstep/launch/process/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/launch/process/rank_logs.h"

namespace lockstep::launch {
namespace {

// Passes `text` through a stream and gives back what the console showed.
std::string through(const StreamPlan& plan, const std::string& text,
                    std::vector<std::string>* last = nullptr) {
  int console[2];
  EXPECT_EQ(::pipe2(console, O_CLOEXEC), 0);
  ::fcntl(console[1], F_SETPIPE_SZ, 1 << 20);
  {
    Console shown(console[1]);
    RankStream stream(plan, shown);
    for (size_t at = 0; at < text.size(); at += 1000) {
      const std::string piece = text.substr(at, 1000);
      EXPECT_EQ(::write(stream.child_end(), piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
      stream.pump();
    }
    stream.close_child_end();
    stream.finish();
    if (last) *last = stream.last_lines(2);
  }
  ::close(console[1]);
  std::string shown;
  char bytes[4096];
  for (ssize_t got = 0; (got = ::read(console[0], bytes, sizeof bytes)) > 0;)
    shown.append(bytes, static_cast<size_t>(got));
  ::close(console[0]);
  return shown;
}

TEST(RankStream, GoesWhereThePlanSays) {
  base::TemporaryFolder folder;
  const std::string file = folder.path() + "/deep/er/log";
  EXPECT_EQ(through({"", true, ""}, "a\nb"), "a\nb");
  EXPECT_EQ(through({"", true, "[0]:"}, "a\nb"), "[0]:a\n[0]:b\n");
  EXPECT_EQ(through({"", false, ""}, "a\nb"), "");
  std::vector<std::string> last;
  EXPECT_EQ(through({file, false, ""}, "a\nb\nc\n", &last), "");
  EXPECT_EQ(base::read_file(file), "a\nb\nc\n");
  EXPECT_EQ(last, (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(through({file, true, "[1]:"}, "d\n", &last), "[1]:d\n");
  EXPECT_EQ(base::read_file(file), "a\nb\nc\nd\n") << "appended";
  EXPECT_EQ(last, (std::vector<std::string>{"d"}));
}

TEST(RankStream, LongLinesAreCut) {
  const std::string line(kMostLine + 10, 'x');
  EXPECT_EQ(through({"", true, ">"}, line + "\n"),
            ">" + std::string(kMostLine, 'x') + "\n>" + std::string(10, 'x') + "\n");
}

TEST(RankStream, WaitsForTheConsoleUntilTheRankHasEnded) {
  int console[2];
  ASSERT_EQ(::pipe2(console, O_CLOEXEC), 0);
  Console shown(console[1]);
  RankStream stream({"", true, ""}, shown);
  const std::string flood(16 << 10, 'x');
  while (!shown.full()) shown.add(flood.data(), flood.size());
  ASSERT_EQ(::write(stream.child_end(), "last\n", 5), 5);
  stream.pump();
  EXPECT_EQ(stream.descriptor(), -1) << "polling it would tell of the same bytes for ever";
  EXPECT_EQ(stream.last_lines(1), std::vector<std::string>{});
  stream.drain();
  EXPECT_EQ(stream.last_lines(1), std::vector<std::string>{"last"});
  ::close(console[0]), ::close(console[1]);
}

// A log of what was seen: not every frame of a progress line, no colours.
TEST(RankStream, OnATerminalTheLogHasLinesAsTheyStoodInTheEnd) {
  base::TemporaryFolder folder;
  const std::string file = folder.path() + "/log";
  const int console = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(console, 0);
  ASSERT_EQ(::grantpt(console), 0);
  ASSERT_EQ(::unlockpt(console), 0);
  Console shown(console);
  RankStream stream({file, true, ""}, shown);
  ASSERT_TRUE(::isatty(stream.child_end()));
  const std::string text = "\033[1mbold\033[0m\r\n\r\033[Kstep 1\r\033[Kstep 2\r\033[Kstep 3\nlast \033[";
  ASSERT_EQ(::write(stream.child_end(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  stream.close_child_end();
  stream.finish();
  EXPECT_EQ(base::read_file(file), "bold\nstep 3\nlast \n");
  ::close(console);
}

// Of a rank that says much and has no log, the report needs the end.
TEST(RankStream, LastLinesAreThoseAtTheEndHoweverMuchWasSaid) {
  for (size_t lines = 100; lines < 6000; lines += 80) {
    std::string text;
    for (size_t k = 0; k < lines; ++k) text += "line " + std::to_string(k) + "\n";
    std::vector<std::string> last;
    through({"", false, ""}, text, &last);
    EXPECT_EQ(last, (std::vector<std::string>{"line " + std::to_string(lines - 2),
                                              "line " + std::to_string(lines - 1)}));
  }
}

TEST(RankStream, LastLinesAreReadable) {
  EXPECT_EQ(last_lines_of("one\n\n  \ntwo\x1b[2J\n 10%\r 50%\r100%\r\n", 2),
            (std::vector<std::string>{"two[2J", "100%"}));
  EXPECT_EQ(last_lines_of("", 2), std::vector<std::string>{});
  EXPECT_EQ(last_lines_of(std::string(100000, 'x'), 1)[0].size(), 200u);
}

TEST(RankLogs, TorchrunsFolders) {
  base::TemporaryFolder folder;
  Options options;
  options.log_dir = folder.path(), options.run_id = "job/7";
  options.redirects.everyone = kErr, options.tee.by_local_rank[1] = kOut;
  options.local_ranks_filter = {1};
  const RankLogs logs(options, "");
  const StreamPlans zero = logs.plans({2, 4, 0, 8}), one = logs.plans({2, 5, 1, 8});
  EXPECT_TRUE(zero.err.file.starts_with(folder.path() + "/job_7_")) << zero.err.file;
  EXPECT_TRUE(zero.err.file.ends_with("/attempt_2/0/stderr.log")) << zero.err.file;
  EXPECT_EQ(zero.out.file, "");
  EXPECT_FALSE(zero.out.console) << "left out by the filter";
  EXPECT_TRUE(one.out.file.ends_with("/attempt_2/1/stdout.log"));
  EXPECT_TRUE(one.out.console);
  EXPECT_EQ(one.out.prefix, "[default1]:");
  EXPECT_FALSE(one.err.console);
}

TEST(RankLogs, RunFoldersCountAttempts) {
  base::TemporaryFolder folder;
  EXPECT_EQ(RankLogs::next_attempt(folder.path() + "/none"), 0);
  folder.write("logs/attempt-0/rank-0.log", "");
  folder.write("logs/attempt-3/rank-0.log", "");
  folder.write("logs/attempt-9x/rank-0.log", "");
  const std::string path = folder.path() + "/logs";
  EXPECT_EQ(RankLogs::next_attempt(path), 4);
  RankLogs logs(Options{}, path);
  logs.set_first_attempt(4);
  EXPECT_EQ(logs.plans({1, 2, 0, 4}).err.file, path + "/attempt-5/rank-2.log");
  EXPECT_FALSE(logs.plans({1, 2, 0, 4}).out.console);
  EXPECT_TRUE(logs.plans({1, 0, 0, 4}).out.console);
}

}  // namespace
}  // namespace lockstep::launch
