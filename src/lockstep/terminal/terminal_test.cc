#include "lockstep/terminal/terminal.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdlib>

namespace lockstep::terminal {
namespace {

// Sets a variable for one test; an empty value unsets it.
class WithVariable {
 public:
  WithVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    *value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~WithVariable() { before_.empty() ? ::unsetenv(name_) : ::setenv(name_, before_.c_str(), 1); }

 private:
  const char* name_;
  std::string before_;
};

// A pseudo-terminal of 57 columns.
struct FakeTerminal {
  int controller = -1, terminal = -1;
  FakeTerminal() {
    winsize size{};
    size.ws_col = 57;
    if (::openpty(&controller, &terminal, nullptr, nullptr, &size) != 0) terminal = -1;
  }
  ~FakeTerminal() {
    ::close(controller);
    ::close(terminal);
  }
};

TEST(Terminal, WidthAndColours) {
  const FakeTerminal fake;
  if (fake.terminal < 0) GTEST_SKIP() << "no pseudo-terminals here";
  const WithVariable columns("COLUMNS", ""), no_color("NO_COLOR", ""), term("TERM", "xterm");
  const Terminal plain = terminal_of(fake.terminal);
  EXPECT_TRUE(plain.is_tty);
  EXPECT_EQ(plain.width, 57u);
  EXPECT_EQ(plain.paint("x", Colour::red), "\033[31mx\033[0m");
  {
    const WithVariable set("NO_COLOR", "1");
    EXPECT_EQ(terminal_of(fake.terminal).paint("x", Colour::red), "x");
  }
  {
    const WithVariable set("TERM", "dumb");
    EXPECT_FALSE(terminal_of(fake.terminal).colours);
  }
  {
    const WithVariable set("COLUMNS", "33");
    EXPECT_EQ(terminal_of(fake.terminal).width, 33u);
  }
  {
    const WithVariable set("COLUMNS", "banana");
    EXPECT_EQ(terminal_of(fake.terminal).width, 57u);
  }
}

TEST(Terminal, APipeIsPlain) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const WithVariable columns("COLUMNS", "");
  const Terminal pipe = terminal_of(ends[1]);
  EXPECT_FALSE(pipe.is_tty);
  EXPECT_FALSE(pipe.colours);
  EXPECT_EQ(pipe.width, 100u);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Terminal, UnicodeFollowsTheLocale) {
  const WithVariable all("LC_ALL", ""), ctype("LC_CTYPE", ""), lang("LANG", "de_DE.UTF-8");
  EXPECT_TRUE(terminal_of(0).unicode);
  const WithVariable stronger("LC_ALL", "C");
  EXPECT_FALSE(terminal_of(0).unicode);
}

TEST(Terminal, TextFromAnywhereDoesNotCommandIt) {
  struct Row {
    const char *text, *shown;
  };
  const Row rows[] = {
      {"plain\ttext\nof two lines\r\n", "plain\ttext\nof two lines\r\n"},
      {"\033[1mbold\033[0m \033[38;5;9mred\033[m", "\033[1mbold\033[0m \033[38;5;9mred\033[m"},
      {"\033[2Jcleared", "?[2Jcleared"},
      {"\033]0;title\007", "?]0;title?"},
      {"\033", "?"},
      {"\033[1", "?[1"},
      {"over\rwritten\b\177", "over?written??"},
      {"\xc2\x9b"
       "2J \xc2\xb5 größe \xff",
       "?2J \xc2\xb5 größe \xff"},
  };
  for (const Row& row : rows) EXPECT_EQ(harmless(row.text), row.shown);
}

}  // namespace
}  // namespace lockstep::terminal
