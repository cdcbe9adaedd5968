#include "lockstep/base/number.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::base {
namespace {

TEST(Number, IsTheWholeTextOrNothing) {
  const struct {
    std::string text;
    std::optional<int> whole, leading;
  } rows[] = {
      {"29400", 29400, 29400},
      {"-3", -3, -3},
      {"", {}, {}},
      {" 1", {}, {}},
      {"+1", {}, {}},
      {"1 ", {}, 1},
      {"12x", {}, 12},
      {"0x10", {}, 0},
      {"x12", {}, {}},
      {"2147483647", 2147483647, 2147483647},
      {"2147483648", {}, {}},
      {std::string("1\0", 2), {}, 1},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(parse_number<int>(row.text), row.whole) << row.text;
    EXPECT_EQ(leading_number<int>(row.text), row.leading) << row.text;
  }
  EXPECT_EQ(parse_number<double>("0.5"), 0.5);
  EXPECT_EQ(parse_number<uint8_t>("256"), std::nullopt);
}

TEST(Number, IsTakenFromTheFront) {
  std::string_view text = "3,5";
  EXPECT_EQ(take_number(text), 3);
  EXPECT_EQ(text, ",5");
  EXPECT_EQ(take_number(text), std::nullopt);
  EXPECT_EQ(text, ",5");
}

}  // namespace
}  // namespace lockstep::base
