// Rows and columns for a terminal: columns aligned, no boxes, and nothing cut.
//
//     Table table({"key", "value", "from"});
//     table.add({"optim.lr", "0.001", "command line"});
//     fputs(table.to_text(terminal_of(STDOUT_FILENO)).c_str(), stdout);
//
// Where the columns are wider than the terminal, cells are broken between words; where even that does not
// suffice, each row becomes a block of its own, one cell a line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/terminal/terminal.h"

namespace lockstep::terminal {

class Table {
 public:
  explicit Table(std::vector<std::string> heading);  // empty: no heading line
  void add(std::vector<std::string> row);            // missing cells are empty
  void align_right(size_t column);                   // for numbers, which are never broken

  // No line is wider than `width`, unless a single word is. Ends with a newline.
  std::string to_text(size_t width) const;
  std::string to_text(const Terminal& terminal) const;  // the heading bold

 private:
  size_t columns() const;
  bool is_right(size_t column) const { return column < right_.size() && right_[column]; }
  bool fit(std::vector<size_t>& widths, size_t width) const;
  std::string row_text(const std::vector<std::string>& row, const std::vector<size_t>& widths) const;
  std::string stacked(size_t width, const Terminal& terminal) const;

  std::vector<std::string> heading_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> right_;
};

}  // namespace lockstep::terminal
