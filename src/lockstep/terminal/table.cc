#include "lockstep/terminal/table.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/text.h"

namespace lockstep::terminal {
namespace {

constexpr size_t kGap = 2;
constexpr size_t kLeastLastColumn = 16;  // words of sentences need some room

std::string cell_of(const std::vector<std::string>& row, size_t column) {
  return column < row.size() ? row[column] : "";
}

size_t longest_word(const std::string& text) {
  size_t longest = 0;
  for (const std::string& word : base::wrapped(text, 1, base::LongWords::whole))
    longest = std::max(longest, base::display_width(word));
  return longest;
}

// A cell may begin with blanks, which set it in.
size_t indent_of(const std::string& text) { return std::min(text.find_first_not_of(' '), text.size()); }

std::vector<std::string> lines_of(const std::string& cell, size_t width) {
  if (base::display_width(cell) <= width) return {cell};
  const size_t indent = indent_of(cell);
  const std::string blanks(indent, ' ');
  std::vector<std::string> lines =
      base::wrapped(cell, width > indent ? width - indent : 1, base::LongWords::whole);
  for (std::string& line : lines) line = blanks + line;
  return lines;
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

Table::Table(std::vector<std::string> heading) : heading_(std::move(heading)) {}

void Table::add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

void Table::align_right(size_t column) {
  right_.resize(std::max(right_.size(), column + 1));
  right_[column] = true;
}

size_t Table::columns() const {
  size_t columns = heading_.size();
  for (const auto& row : rows_) columns = std::max(columns, row.size());
  return columns;
}

// Gives the columns their widths: as wide as their cells, then, the widest first, less, down to their longest
// word. False: that is still too much.
bool Table::fit(std::vector<size_t>& widths, size_t width) const {
  std::vector<size_t> least(widths.size(), 1);
  const auto measure = [&](const std::vector<std::string>& row, bool is_heading) {
    for (size_t i = 0; i < row.size(); ++i) {
      const size_t wanted = base::display_width(row[i]);
      widths[i] = std::max(widths[i], wanted);
      const bool breaks = is_heading || !is_right(i);
      least[i] = std::max(least[i], breaks ? indent_of(row[i]) + longest_word(row[i]) : wanted);
    }
  };
  measure(heading_, true);
  for (const auto& row : rows_) measure(row, false);
  least.back() = std::max(least.back(), std::min(widths.back(), kLeastLastColumn));
  const auto total = [&] {
    size_t sum = kGap * (widths.size() - 1);
    for (const size_t one : widths) sum += one;
    return sum;
  };
  while (total() > width) {
    size_t widest = widths.size();
    // The last column holds the sentences: it gives way first, as far as it can.
    if (widths.back() > least.back()) {
      widest = widths.size() - 1;
    } else {
      for (size_t i = 0; i + 1 < widths.size(); ++i) {
        if (widths[i] > least[i] && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
      }
    }
    if (widest == widths.size()) return false;
    --widths[widest];
  }
  return true;
}

std::string Table::row_text(const std::vector<std::string>& row, const std::vector<size_t>& widths) const {
  std::vector<std::vector<std::string>> cells;
  size_t height = 1;
  for (size_t i = 0; i < widths.size(); ++i) {
    cells.push_back(lines_of(cell_of(row, i), widths[i]));
    height = std::max(height, cells.back().size());
  }
  std::string out;
  for (size_t k = 0; k < height; ++k) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i) {
      const std::string cell = k < cells[i].size() ? cells[i][k] : "";
      const size_t used = base::display_width(cell);
      const std::string blanks(widths[i] > used ? widths[i] - used : 0, ' ');
      line += (is_right(i) ? blanks + cell : cell + blanks) + std::string(kGap, ' ');
    }
    out += without_trailing_blanks(std::move(line));
  }
  return out;
}

// A block a row: its first cell, then the others below it, each behind its heading.
std::string Table::stacked(size_t width, const Terminal& terminal) const {
  std::string out;
  for (const auto& row : rows_) {
    const size_t indent = indent_of(cell_of(row, 0)) + kGap;
    out += base::hanging(cell_of(row, 0), width, kGap) + "\n";
    for (size_t i = 1; i < row.size(); ++i) {
      if (row[i].empty()) continue;
      const std::string label = cell_of(heading_, i), text(row[i].substr(indent_of(row[i])));
      const std::string shown = label.empty() ? text : label + ": " + text;
      std::string block = base::hanging(std::string(indent, ' ') + shown, width, label.empty() ? 0 : kGap);
      if (!label.empty()) block.replace(indent, label.size(), terminal.paint(label, Colour::dim));
      out += block + "\n";
    }
  }
  return out;
}

std::string Table::to_text(size_t width) const {
  Terminal plain;
  plain.width = width;
  return to_text(plain);
}

std::string Table::to_text(const Terminal& terminal) const {
  if (columns() == 0) return "";
  std::vector<size_t> widths(columns(), 0);
  if (!fit(widths, terminal.width)) return stacked(terminal.width, terminal);
  std::string out;
  for (const std::string& line : base::split_lines(heading_.empty() ? "" : row_text(heading_, widths)))
    out += terminal.paint(line, Colour::bold) + "\n";
  for (const auto& row : rows_) out += row_text(row, widths);
  return out;
}

}  // namespace lockstep::terminal
