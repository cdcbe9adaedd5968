#include "lockstep/terminal/scatter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::terminal {
namespace {

const ScatterStyle kStyle{.width = 26,
                          .height = 3,
                          .x_text = [](double x) { return std::to_string(static_cast<int>(x)) + " h"; },
                          .y_text = [](double y) { return "$" + std::to_string(static_cast<int>(y)); }};

TEST(Scatter, PointsStandWhereTheyBelong) {
  EXPECT_EQ(draw_points({{1, 100, 'a'}, {10, 10, 'b'}, {100, 1, 'c'}}, kStyle),
            "$100 |a\n"
            "     |          b\n"
            "  $1 |                   c\n"
            "     +--------------------\n"
            "      1 h            100 h\n");
}

TEST(Scatter, FirstOfThoseThatFallTogetherStands) {
  const std::string text = draw_points({{1, 1, 'a'}, {1, 1, 'b'}}, kStyle);
  EXPECT_NE(text.find('a'), std::string::npos);
  EXPECT_EQ(text.find('b'), std::string::npos);
}

TEST(Scatter, NothingToDraw) {
  EXPECT_EQ(draw_points({}, kStyle), "");
  EXPECT_EQ(draw_points({{0, 1, 'a'}, {1, std::nan(""), 'b'}, {-1, 2, 'c'}}, kStyle), "");
}

}  // namespace
}  // namespace lockstep::terminal
