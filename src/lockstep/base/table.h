// Rows and columns for a terminal: columns aligned, the last one wrapped to the width, no boxes.
//
//     Table table({"key", "value", "from"});
//     table.add({"optim.lr", "0.001", "command line"});
//     fputs(table.to_text(80).c_str(), stdout);
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::base {

class Table {
 public:
  explicit Table(std::vector<std::string> heading);  // empty: no heading line
  void add(std::vector<std::string> row);            // missing cells are empty
  void align_right(size_t column);                   // for numbers

  // No line is wider than `width` as long as each column before the last fits in half of it; cells there
  // are cut. Ends with a newline.
  std::string to_text(size_t width) const;

 private:
  std::vector<std::string> heading_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> right_;
};

}  // namespace lockstep::base
