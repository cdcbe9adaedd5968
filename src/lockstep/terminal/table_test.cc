#include "lockstep/terminal/table.h"

#include <gtest/gtest.h>

#include "lockstep/base/text.h"

namespace lockstep::terminal {
namespace {

TEST(Table, AlignsColumnsAndWrapsTheLast) {
  Table table({"key", "n", "meaning"});
  table.add({"optim.lr", "1", "the rate at which it learns"});
  table.add({"seed", "100"});
  table.align_right(1);
  EXPECT_EQ(table.to_text(32),
            "key         n  meaning\n"
            "optim.lr    1  the rate at which\n"
            "               it learns\n"
            "seed      100\n");
}

TEST(Table, NeverWiderThanTheWidthUnlessAWordIs) {
  Table table({"a", "b"});
  table.add({"several words in the first column", "and a number: 12.5 k"});
  table.add({"\xC3\xA9", "some words that are many and need wrapping"});
  for (size_t width : {20u, 40u, 80u}) {
    for (const std::string& line : base::split_lines(table.to_text(width)))
      EXPECT_LE(base::display_width(line), width);
  }
  EXPECT_EQ(Table({}).to_text(80), "");
}

TEST(Table, CutsNothing) {
  Table table({"key", "value", "from"});
  table.add({"precision.fp8_gradients", "\"auto\"", "default"});
  table.add({"data.path", "a/long/path/that/somebody/will/copy", "command line"});
  for (size_t width : {20u, 40u, 60u, 80u}) {
    const std::string text = table.to_text(width);
    for (const char* word : {"precision.fp8_gradients", "a/long/path/that/somebody/will/copy", "command"})
      EXPECT_NE(text.find(word), std::string::npos) << width << "\n" << text;
  }
  EXPECT_EQ(table.to_text(40),
            "precision.fp8_gradients\n"
            "  value: \"auto\"\n"
            "  from: default\n"
            "data.path\n"
            "  value:\n"
            "    a/long/path/that/somebody/will/copy\n"
            "  from: command line\n");
}

TEST(Table, BreaksCellsBetweenWordsBeforeItGivesUpColumns) {
  Table table({"samples per slice", "memory"});
  table.add({"8", "12.5 MiB"});
  table.align_right(0);
  table.align_right(1);
  EXPECT_EQ(table.to_text(18),
            " samples    memory\n"
            "     per\n"
            "   slice\n"
            "       8  12.5 MiB\n");
}

}  // namespace
}  // namespace lockstep::terminal
