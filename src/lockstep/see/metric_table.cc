#include "lockstep/see/metric_table.h"

#include <cmath>

namespace lockstep::see {

namespace {

constexpr size_t kMostColumns = 1000;  // a file with more names is no run's; the first ones are kept

double at(const std::vector<double>& values, size_t row) {
  return row < values.size() ? values[row] : std::nan("");
}

}  // namespace

bool is_number_word(std::string_view text) { return text == "nan" || text == "inf" || text == "-inf"; }

// Rows usually have the same names in the same order.
MetricTable::Column& MetricTable::column(const std::string& name, size_t likely) {
  if (likely < columns_.size() && columns_[likely].name == name) return columns_[likely];
  for (Column& one : columns_) {
    if (one.name == name) return one;
  }
  return columns_.emplace_back(Column{name, {}});
}

void MetricTable::add(const LogRow& row) {
  size_t likely = 0;
  for (const auto& [name, value] : row.values) {
    if (!words_.empty()) std::erase_if(words_, [&](const auto& one) { return one.first == name; });
    if (columns_.size() >= kMostColumns && find(name) == nullptr) continue;
    Column& to = column(name, likely);
    likely = static_cast<size_t>(&to - columns_.data()) + 1;
    to.values.resize(steps_.size(), std::nan(""));
    to.values.push_back(value);
  }
  for (const auto& word : row.words) {
    std::erase_if(words_, [&](const auto& one) { return one.first == word.first; });
    if (words_.size() < kMostColumns) words_.push_back(word);
  }
  steps_.push_back(row.step);
  seconds_.push_back(row.seconds);
}

LogRow MetricTable::operator[](size_t row) const {
  LogRow out{.step = steps_[row], .seconds = seconds_[row], .values = {}};
  for (const Column& one : columns_) {
    if (const double value = at(one.values, row); !std::isnan(value))
      out.values.emplace_back(one.name, value);
  }
  return out;
}

bool MetricTable::same(size_t row, const MetricTable& other) const {
  if (row >= size() || row >= other.size() || steps_[row] != other.steps_[row]) return false;
  return (*this)[row].values == other[row].values;
}

std::vector<std::string> MetricTable::names() const {
  std::vector<std::string> names;
  for (const Column& one : columns_) names.push_back(one.name);
  return names;
}

const std::vector<double>* MetricTable::find(std::string_view name) const {
  for (const Column& one : columns_) {
    if (one.name == name) return &one.values;
  }
  return nullptr;
}

std::string MetricTable::last_word(std::string_view name) const {
  for (const auto& [metric, word] : words_) {
    if (metric == name) return word;
  }
  return "";
}

double MetricTable::last(std::string_view name) const {
  const std::vector<double>* values = find(name);
  if (values != nullptr) {
    for (auto value = values->rbegin(); value != values->rend(); ++value) {
      if (!std::isnan(*value)) return *value;
    }
  }
  return std::nan("");
}

}  // namespace lockstep::see
