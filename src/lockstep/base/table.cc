#include "lockstep/base/table.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/text.h"

namespace lockstep::base {
namespace {

constexpr size_t kGap = 2;
constexpr size_t kLeastLastColumn = 16;

std::string padded(const std::string& text, size_t width, bool right) {
  const std::string cell = cut_to_width(text, width);
  const std::string blanks(width - display_width(cell), ' ');
  return right ? blanks + cell : cell + blanks;
}

// Columns before the last share what is left once the last has room: the widest give way first.
void shrink(std::vector<size_t>& widths, size_t available) {
  const auto total = [&] {
    size_t sum = 0;
    for (size_t i = 0; i + 1 < widths.size(); ++i) sum += widths[i] + kGap;
    return sum;
  };
  while (widths.size() > 1 && total() + kLeastLastColumn > available) {
    const auto widest = std::max_element(widths.begin(), widths.end() - 1);
    if (*widest <= 1) break;
    --*widest;
  }
  widths.back() = std::max<size_t>(1, available > total() ? available - total() : 1);
}

}  // namespace

Table::Table(std::vector<std::string> heading) : heading_(std::move(heading)) {}

void Table::add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

void Table::align_right(size_t column) {
  right_.resize(std::max(right_.size(), column + 1));
  right_[column] = true;
}

std::string Table::to_text(size_t width) const {
  size_t columns = heading_.size();
  for (const auto& row : rows_) columns = std::max(columns, row.size());
  if (columns == 0) return "";
  std::vector<size_t> widths(columns, 0);
  const auto measure = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  };
  measure(heading_);
  for (const auto& row : rows_) measure(row);
  shrink(widths, std::max<size_t>(width, kLeastLastColumn));

  std::string out;
  const auto print = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t i = 0; i + 1 < columns; ++i) {
      const bool right = i < right_.size() && right_[i];
      line += padded(i < row.size() ? row[i] : "", widths[i], right) + std::string(kGap, ' ');
    }
    const std::string indent(display_width(line), ' ');
    const std::vector<std::string> last =
        wrapped(columns <= row.size() ? row[columns - 1] : "", widths.back());
    for (size_t i = 0; i < last.size(); ++i) {
      std::string text = (i == 0 ? line : indent) + last[i];
      text.erase(text.find_last_not_of(' ') + 1);
      out += text + "\n";
    }
  };
  if (!heading_.empty()) print(heading_);
  for (const auto& row : rows_) print(row);
  return out;
}

}  // namespace lockstep::base
