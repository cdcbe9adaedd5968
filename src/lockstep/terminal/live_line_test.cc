#include "lockstep/terminal/live_line.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/base/text.h"

namespace lockstep::terminal {
namespace {

// Runs `use` with a line on a made-up terminal and clock; gives what came out.
template <class Use>
std::string output_of(Terminal terminal, Use use) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* out = ::open_memstream(&text, &size);
  int64_t now = 0;
  {
    LiveLine line(out, terminal, [&now] { return now; });
    use(line, now);
  }
  std::fclose(out);
  std::string copy(text, size);
  std::free(text);
  return copy;
}

constexpr int64_t kSecond = 1'000'000'000;

TEST(LiveLine, APipeGetsFewPlainLines) {
  const std::string out = output_of({.width = 20}, [](LiveLine& line, int64_t& now) {
    for (int i = 0; i <= 600; ++i) {
      now = i * kSecond / 10;  // a minute
      line.update("step " + std::to_string(i) + " \033[2J\n");
    }
  });
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](char c) { return c == '\n' || c >= ' '; }));
  const std::vector<std::string> lines = base::split_lines(out);
  EXPECT_TRUE(lines.front().starts_with("step 0"));
  EXPECT_TRUE(lines.back().starts_with("step 600"));  // the last is never lost
  // 0, then after 0.5, 1, 2, 4, 8 s, then every 10 s.
  EXPECT_GE(lines.size(), 9u);
  EXPECT_LE(lines.size(), 13u);
}

TEST(LiveLine, ATerminalGetsOneLineNoWiderThanItself) {
  const std::string out = output_of({.is_tty = true, .width = 20}, [](LiveLine& line, int64_t& now) {
    for (int i = 0; i < 100; ++i) {
      now += kSecond / 1000;
      line.update("step " + std::to_string(i) + " and much more than fits");
    }
    line.print("a line that stays");
  });
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 2);
  EXPECT_LE(std::count(out.begin(), out.end(), '\r'), 8);  // at most 20 frames a second
  EXPECT_NE(out.find("\r\033[Ka line that stays\n"), std::string::npos);
  size_t begin = 0;
  while ((begin = out.find("\r\033[Kstep", begin)) != std::string::npos) {
    begin += 4;
    const std::string frame = out.substr(begin, out.find_first_of("\r\n", begin) - begin);
    EXPECT_LE(base::display_width(frame), 19u);
  }
  EXPECT_NE(out.find("step 99 and"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::terminal
