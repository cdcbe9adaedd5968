// A small curve in characters, for a loss that a person wants to see before leaving the terminal.
//
//     fputs(draw_curve(losses, {.width = 60, .first = 1, .last = 600, .unicode = true}).c_str(), stdout);
//
//     4.16 |⠑⢄
//          |  ⠑⠢⣀
//     1.02 |     ⠉⠒⠤⠤⣀⣀
//          +-----------
//           1        600
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::terminal {

struct CurveStyle {
  size_t width = 60;  // columns in all, labels included
  size_t height = 8;  // lines of the plot
  int64_t first = 0;  // what stands under the first and the last value: steps
  int64_t last = 0;
  bool unicode = true;  // braille, two by four dots a character; else ASCII stars
};

// Values that are not finite leave a gap. Empty when there is nothing to draw.
std::string draw_curve(const std::vector<double>& values, const CurveStyle& style);

}  // namespace lockstep::terminal
