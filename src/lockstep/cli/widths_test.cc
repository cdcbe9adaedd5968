// What is printed on a terminal fits it: at 40, 80 and 120 columns lines end between words, and go on below
// with a hanging indent. One row a command.
#include <gtest/gtest.h>

#include <regex>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

// What a person sees of `line` on a terminal of so many columns, without colours and what was overwritten.
std::vector<std::string> seen(const std::string& folder, const std::string& line, size_t columns) {
  const std::string shown = fmt::format(
      "cat >seen.sh <<'END'\nstty cols {} rows 40; L='{}'; {}\nEND\n"
      "env -u COLUMNS TERM=xterm LC_ALL=C.UTF-8 PAGER=cat script -qec 'bash seen.sh' /dev/null </dev/null",
      columns, LOCKSTEP_PROGRAM, line);
  std::string text = run_shell(folder, shown).output;
  text = std::regex_replace(text, std::regex("\x1b\\[[0-9;?]*[A-Za-z]"), "");
  std::vector<std::string> lines = base::split_lines(std::regex_replace(text, std::regex("\r+\n"), "\n"));
  for (std::string& one : lines) one.erase(0, one.find_last_of('\r') + 1);
  return lines;
}

// A word that is longer than a line, such as a path, stands alone in it.
bool fits(const std::string& line, size_t columns) {
  if (base::display_width(line) <= columns) return true;
  const size_t first = line.find_first_not_of(' ');
  return line.find(' ', first) == std::string::npos;
}

struct Shown {
  const char* line;
  const char* says;  // a word that stands in what it prints
  std::vector<size_t> columns = {40, 80, 120};
};

class Widths : public ::testing::TestWithParam<Shown> {};

TEST_P(Widths, NothingIsWiderThanTheTerminal) {
  base::TemporaryFolder folder;
  const std::string clean = std::string("CUDA_VISIBLE_DEVICES= ") + GetParam().line;
  for (const size_t columns : GetParam().columns) {
    const std::vector<std::string> lines = seen(folder.path(), clean, columns);
    EXPECT_NE(base::join(lines, "\n").find(GetParam().says), std::string::npos) << clean << "\n"
                                                                                << base::join(lines, "\n");
    for (const std::string& line : lines) EXPECT_TRUE(fits(line, columns)) << columns << ": " << line;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Commands, Widths,
    ::testing::Values(
        Shown{"$L train run.steps=2 model.layers=1 run.device=cpu --resume never", "longer"},
        Shown{
            "$L train memory.limit_gib=0.01 batch.slices=8 batch.strands=8 --dry-run", "out of memory", {40}},
        Shown{"$L train optm.lr=3", "optim.lr"}, Shown{"$L plan --on 8xH100 --explain", "bottleneck", {40}},
        Shown{"$L plan --on a3-megagpu-8g --tariff spot --quick", "spot", {40, 80}},
        Shown{"$L explain", "[optim]"}, Shown{"$L explain optim.lr", "Learning"},
        Shown{"$L explain memory", "needs"},
        Shown{"$L explain memory memory.limit_gib=0.01", "does not fit", {40}},
        Shown{"$L explain program --nproc 2", "checked:"}, Shown{"$L explain parameters", "trained"},
        Shown{"$L explain environment", "LOCKSTEP_"}, Shown{"$L doctor", "processor", {40, 80}},
        Shown{
            "$L train run.steps=2 model.layers=1 run.device=cpu run.name=t >/dev/null 2>&1; $L top t --once",
            "t"}));

}  // namespace
}  // namespace lockstep::cli
