// The numbers that a run has logged, by column: a million rows of a dozen metrics take a hundred megabytes.
//
//     MetricTable table;
//     table.add({.step = 1, .values = {{"loss", 4.5}}});
//     for (const double loss : *table.find("loss")) ...     // NaN where a row has none
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::see {

struct LogRow {
  int64_t step = 0;
  double seconds = 0;                                  // since 1970; 0: the line does not tell
  std::vector<std::pair<std::string, double>> values;  // by name, in the file's order; never NaN
  // Names of numbers that are none, with the word that stands for them: "nan", "inf", "-inf".
  std::vector<std::pair<std::string, std::string>> words = {};
};
bool is_number_word(std::string_view text);

class MetricTable {
 public:
  void add(const LogRow& row);
  size_t size() const { return steps_.size(); }
  bool empty() const { return steps_.empty(); }
  int64_t step(size_t row) const { return steps_[row]; }
  double seconds(size_t row) const { return seconds_[row]; }
  LogRow operator[](size_t row) const;
  bool same(size_t row, const MetricTable& other) const;  // this row of both

  // Every name that some row has a number for, in the order of their first appearance.
  std::vector<std::string> names() const;
  // Its numbers by row; those after the last that has one may be missing. Null: no row has it.
  const std::vector<double>* find(std::string_view name) const;
  double last(std::string_view name) const;  // the newest number; NaN: none
  // "nan" or "inf" where the newest row with this metric has no number for it; empty: it has one.
  std::string last_word(std::string_view name) const;
  // Of metrics that end so.
  const std::vector<std::pair<std::string, std::string>>& last_words() const { return words_; }

 private:
  struct Column {
    std::string name;
    std::vector<double> values;
  };
  Column& column(const std::string& name, size_t likely);

  std::vector<int64_t> steps_;
  std::vector<double> seconds_;
  std::vector<Column> columns_;
  std::vector<std::pair<std::string, std::string>> words_;  // by name; mostly none
};

}  // namespace lockstep::see
