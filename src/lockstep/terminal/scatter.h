// Points in characters, on logarithmic scales: cost against time, each offer a letter.
//
//     fputs(draw_points({{2, 900, 'a'}, {40, 120, 'b'}}, {.x_text = hours, .y_text = dollars}).c_str(),
//     stdout);
//
//     $900 |a
//          |
//     $120 |                   b
//          +--------------------
//           2 h             40 h
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::terminal {

struct Point {
  double x = 0, y = 0;  // above 0; others are left out
  char mark = '*';
};

struct ScatterStyle {
  size_t width = 60;                                  // columns in all, labels included
  size_t height = 12;                                 // lines of the plot
  std::function<std::string(double)> x_text, y_text;  // labels of the ends
};

// Where points fall together, the first stands. Empty when there is nothing to draw.
std::string draw_points(const std::vector<Point>& points, const ScatterStyle& style);

}  // namespace lockstep::terminal
