#include "lockstep/terminal/curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/text.h"

namespace lockstep::terminal {
namespace {

TEST(Curve, AsciiFallingLine) {
  const std::string text =
      draw_curve({4, 3, 2, 1}, {.width = 7, .height = 4, .first = 1, .last = 4, .unicode = false});
  EXPECT_EQ(text,
            "4 |*\n"
            "  | *\n"
            "  |  *\n"
            "1 |   *\n"
            "  +----\n"
            "   1  4\n");
}

// Seven values in three columns: each is in one of them, the last ones too.
TEST(Curve, ColumnsAreMeansOfAllTheirValues) {
  EXPECT_EQ(
      draw_curve({1, 1, 1, 1, 1, 1, 7}, {.width = 6, .height = 4, .first = 1, .last = 7, .unicode = false}),
      "7 |\n"
      "  |\n"
      "  |  *\n"
      "1 |**\n"
      "  +---\n"
      "   1 7\n");
}

TEST(Curve, BrailleFallingLine) {
  const std::string text =
      draw_curve({4, 3, 2, 1}, {.width = 5, .height = 1, .first = 1, .last = 4, .unicode = true});
  EXPECT_EQ(base::split_lines(text)[0], "4 |\xE2\xA0\x91\xE2\xA2\x84");  // dots 1, 5 and 3, 8
}

TEST(Curve, FitsItsWidthForAnyValues) {
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(1000.0 / (i + 1));
  values[10] = NAN;
  values[500] = INFINITY;
  for (bool unicode : {false, true}) {
    for (size_t width : {12u, 30u, 80u}) {
      const std::string text =
          draw_curve(values, {.width = width, .first = 0, .last = 999, .unicode = unicode});
      EXPECT_EQ(base::split_lines(text).size(), 8u + 2);
      for (const std::string& line : base::split_lines(text))
        EXPECT_LE(base::display_width(line), width) << text;
    }
  }
}

// Where several values share a column, one that is no number is left out of their mean.
TEST(Curve, AGapDoesNotPullTheCurve) {
  std::vector<double> whole(300, 9.0);
  std::fill(whole.begin() + 150, whole.end(), 5.0);  // at the border of two columns of five values
  std::vector<double> gaps = whole;
  for (const size_t i : {3u, 50u, 51u, 120u, 299u}) gaps[i] = NAN;
  const CurveStyle style{.width = 33, .first = 0, .last = 299};
  EXPECT_EQ(draw_curve(gaps, style), draw_curve(whole, style));
}

TEST(Curve, OddInput) {
  EXPECT_EQ(draw_curve({}, {}), "");
  EXPECT_EQ(draw_curve({NAN, INFINITY}, {}), "");
  EXPECT_NE(draw_curve({2}, {}), "");
  EXPECT_NE(draw_curve({3, 3, 3}, {.width = 1, .height = 1}), "");
  EXPECT_NE(draw_curve({-1e308, 1e308}, {}), "");
}

}  // namespace
}  // namespace lockstep::terminal
