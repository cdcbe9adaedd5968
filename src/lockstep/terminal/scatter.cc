#include "lockstep/terminal/scatter.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/text.h"

namespace lockstep::terminal {
namespace {

bool can_be_drawn(const Point& p) { return p.x > 0 && p.y > 0 && std::isfinite(p.x) && std::isfinite(p.y); }

// A logarithmic scale of so many cells.
struct Scale {
  double low = 0, high = 0;
  void take(double value) {
    low = low > 0 ? std::min(low, value) : value;
    high = std::max(high, value);
  }
  size_t cell(double value, size_t cells) const {
    if (high <= low) return cells / 2;
    const double share = (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
    return static_cast<size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(cells - 1) + 0.5);
  }
};

std::string padded(const std::string& text, size_t width) {
  const size_t shown = base::display_width(text);
  return std::string(width > shown ? width - shown : 0, ' ') + text;
}

}  // namespace

std::string draw_points(const std::vector<Point>& points, const ScatterStyle& style) {
  Scale x, y;
  for (const Point& p : points) {
    if (can_be_drawn(p)) x.take(p.x), y.take(p.y);
  }
  if (x.high <= 0) return "";
  const std::string top = style.y_text(y.high), bottom = style.y_text(y.low);
  const size_t label = std::max(base::display_width(top), base::display_width(bottom)) + 1;
  const size_t columns = std::max<size_t>(10, style.width > label + 1 ? style.width - label - 1 : 10);
  const size_t lines = std::max<size_t>(2, style.height);
  std::vector<std::string> plot(lines, std::string(columns, ' '));
  for (const Point& p : points) {
    if (!can_be_drawn(p)) continue;
    char& cell = plot[lines - 1 - y.cell(p.y, lines)][x.cell(p.x, columns)];
    if (cell == ' ') cell = p.mark;
  }
  std::string text;
  for (size_t k = 0; k < lines; ++k) {
    const std::string said = k == 0 ? top : k + 1 == lines && y.high > y.low ? bottom : "";
    std::string line = plot[k];
    line.erase(line.find_last_not_of(' ') + 1);
    text += padded(said, label - 1) + " |" + line + "\n";
  }
  const std::string first = style.x_text(x.low), last = x.high > x.low ? style.x_text(x.high) : "";
  const size_t left = columns > base::display_width(first) ? columns - base::display_width(first) : 0;
  return text + std::string(label, ' ') + "+" + std::string(columns, '-') + "\n" +
         std::string(label + 1, ' ') + first + padded(last, left) + "\n";
}

}  // namespace lockstep::terminal
