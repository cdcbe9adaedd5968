#include "lockstep/terminal/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/text.h"

namespace lockstep::terminal {
namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

// At most `columns` values: the mean of the finite ones that fall together.
std::vector<double> averaged(const std::vector<double>& values, size_t columns) {
  if (values.size() <= columns) return values;
  std::vector<double> out(columns, kGap);
  for (size_t column = 0; column < columns; ++column) {
    double sum = 0;
    int count = 0;
    const size_t end = (column + 1) * values.size() / columns;
    for (size_t i = column * values.size() / columns; i < end; ++i) {
      if (std::isfinite(values[i])) sum += values[i], ++count;
    }
    if (count > 0) out[column] = sum / count;
  }
  return out;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool empty() const { return low > high; }
  // 0 at the bottom, 1 at the top. Half of each before subtracting: the difference of huge values overflows.
  double height(double value) const {
    return high > low ? (value / 2 - low / 2) / (high / 2 - low / 2) : 0.5;
  }
};

Range range_of(const std::vector<double>& values) {
  Range range;
  for (double value : values) {
    if (!std::isfinite(value)) continue;
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
  }
  return range;
}

// The plot as dots, drawn with whatever a cell can show.
class Dots {
 public:
  Dots(size_t width, size_t height) : width_(width), height_(height), set_(width * height) {}
  void set(size_t x, size_t y) { set_[y * width_ + x] = true; }
  bool at(size_t x, size_t y) const { return set_[y * width_ + x]; }
  size_t height() const { return height_; }
  size_t width() const { return width_; }

 private:
  size_t width_, height_;
  std::vector<bool> set_;
};

// One column a value, joined up or down to the one before so that steep parts stay a line.
Dots plot(const std::vector<double>& values, const Range& range, size_t width, size_t height) {
  Dots dots(width, height);
  const auto row_of = [&](double value) {
    return static_cast<size_t>(std::lround((1 - range.height(value)) * static_cast<double>(height - 1)));
  };
  for (size_t x = 0; x < width; ++x) {
    const double value = values[x * values.size() / width];
    if (!std::isfinite(value)) continue;
    const size_t y = row_of(value);
    const double before = x > 0 ? values[(x - 1) * values.size() / width] : value;
    const size_t from = std::isfinite(before) ? row_of(before) : y;
    dots.set(x, y);
    for (size_t between = std::min(y, from) + 1; between < std::max(y, from); ++between) dots.set(x, between);
  }
  return dots;
}

std::string utf8(unsigned code) {  // of U+0800 to U+FFFF
  return {static_cast<char>(0xE0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

// Braille patterns number their dots by columns, with the fourth row added later.
std::string braille_cell(const Dots& dots, size_t column, size_t line) {
  constexpr unsigned kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  unsigned pattern = 0;
  for (size_t y = 0; y < 4; ++y) {
    for (size_t x = 0; x < 2; ++x) {
      if (dots.at(2 * column + x, 4 * line + y)) pattern |= kBits[y][x];
    }
  }
  return pattern == 0 ? " " : utf8(0x2800 + pattern);
}

}  // namespace

std::string draw_curve(const std::vector<double>& values, const CurveStyle& style) {
  const Range range = range_of(values);
  if (range.empty() || style.height == 0) return "";
  const std::string high = fmt::format("{:.4g}", range.high), low = fmt::format("{:.4g}", range.low);
  const size_t label = std::max(high.size(), low.size());
  const size_t columns = style.width > label + 4 ? style.width - label - 2 : 2;
  const size_t across = style.unicode ? 2 : 1, down = style.unicode ? 4 : 1;
  const Dots dots = plot(averaged(values, columns * across), range, columns * across,
                         std::max<size_t>(1, style.height * down));

  std::string out;
  for (size_t line = 0; line < style.height; ++line) {
    const std::string& text = line == 0 ? high : line + 1 == style.height ? low : "";
    out += fmt::format("{:>{}} |", text, label);
    std::string cells;
    for (size_t column = 0; column < columns; ++column) {
      cells += style.unicode ? braille_cell(dots, column, line) : dots.at(column, line) ? "*" : " ";
    }
    cells.erase(cells.find_last_not_of(' ') + 1);
    out += cells + "\n";
  }
  const std::string first = fmt::format("{}", style.first), last = fmt::format("{}", style.last);
  out += fmt::format("{:>{}} +{}\n", "", label, std::string(columns, '-'));
  const size_t room = columns > first.size() ? columns - first.size() : 0;
  return out + fmt::format("{:>{}}  {}{:>{}}\n", "", label, first, room > last.size() ? last : "", room);
}

}  // namespace lockstep::terminal
