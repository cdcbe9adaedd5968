#include "lockstep/base/money.h"

#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

TEST(Money, IsReadAsPeopleWriteIt) {
  for (const auto& [text, usd] : std::initializer_list<std::pair<const char*, double>>{
           {"$50", 50}, {"50", 50}, {" $1,200.50 ", 1200.5}, {"50 USD", 50}, {"$1.5k", 1500}, {"0", 0}})
    EXPECT_EQ(parse_dollars(text), usd) << text;
  for (const char* text : {"", "$", "-5", "$-5", "1e3", "nan", "inf", "5 EUR", "fifty", "1.2.3", "$$5"})
    EXPECT_EQ(parse_dollars(text), std::nullopt) << text;
}

TEST(Money, IsShownWithThousands) {
  EXPECT_EQ(dollars(0.349), "$0.35");
  EXPECT_EQ(dollars(1204.4), "$1,204");
  EXPECT_EQ(dollars(1234567), "$1,234,567");
}

}  // namespace
}  // namespace lockstep::base
