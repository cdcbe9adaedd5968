#include "lockstep/base/table.h"

#include <gtest/gtest.h>

#include "lockstep/base/text.h"

namespace lockstep::base {
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

TEST(Table, NeverWiderThanTheWidth) {
  Table table({"a", "b"});
  table.add({std::string(200, 'x'), std::string(200, 'y')});
  table.add({"\xC3\xA9", "some words that are many and need wrapping"});
  for (size_t width : {20u, 40u, 80u}) {
    for (const std::string& line : split_lines(table.to_text(width))) EXPECT_LE(display_width(line), width);
  }
  EXPECT_EQ(Table({}).to_text(80), "");
}

}  // namespace
}  // namespace lockstep::base
