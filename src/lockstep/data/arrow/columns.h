// One column of a Parquet or Arrow file, or whole rows as JSON, batch by batch: the only thing the rest of
// the program sees of Arrow.
//
// Arrow's libraries are opened with dlopen, through liblockstep_arrow.so beside the program, when the first
// such file is read; most runs never do. Whatever Arrow refuses becomes a DataError that names the file.
//
//     const auto column = open_column({.file = "a.parquet", .field = "text", .form = ColumnForm::parquet});
//     for (ColumnRows rows; column->next(rows);) use(rows);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

enum class ColumnForm : uint8_t { parquet, arrow_file, arrow_stream };

struct ColumnQuery {
  std::string file, field;
  ColumnForm form;
  bool rows = false;  // a row is a JSON object of all columns, and `field` counts for nothing
};

struct ColumnRows {
  int64_t first = 0;                 // of the file, from 0
  std::string bytes = {};            // the rows' text one after the other
  std::vector<int32_t> tokens = {};  // or their tokens
  std::vector<int64_t> ends = {};    // where each row ends in these
  std::vector<bool> null = {};
  int64_t taken = 0;  // bytes of the file since the batch before, about

  size_t size() const { return ends.size(); }
  int64_t begin_of(size_t row) const { return row == 0 ? 0 : ends[row - 1]; }
  std::string_view text(size_t row) const {
    return std::string_view(bytes).substr(static_cast<size_t>(begin_of(row)),
                                          static_cast<size_t>(ends[row] - begin_of(row)));
  }
};

class Column {
 public:
  virtual ~Column() = default;
  virtual bool holds_tokens() const = 0;               // lists of whole numbers instead of text
  virtual bool next(ColumnRows& rows) = 0;             // false at the end
  virtual std::vector<std::string> names() const = 0;  // of the file's columns
};

// DataError 212, 213: no such column, or one of another type. 276: the file is not what it seems, is damaged,
// or needs too much memory. ConfigError 277: this build has no Arrow.
std::unique_ptr<Column> open_column(const ColumnQuery& query);
bool has_arrow();  // whether liblockstep_arrow.so is there

}  // namespace lockstep::data

// In the plugin. The caller owns what it gets.
extern "C" lockstep::data::Column* lockstep_open_column(const lockstep::data::ColumnQuery& query);
