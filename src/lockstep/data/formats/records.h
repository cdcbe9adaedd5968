// The objects of a file of JSON: one on each line, or the elements of one list. Rows of Parquet and Arrow
// files are such objects too.
//
//     const RecordFile file(path);
//     for (const Record& record : file.records()) Json::parse(file.text(record));
//
// Elements are found without building the list, so memory is bounded by the largest of them. A file that is
// compressed (gzip, zstd) is unpacked into memory; places are those in its text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/mapped_file.h"
#include "lockstep/data/arrow/columns.h"

namespace lockstep::data {

struct Record {
  size_t offset, size;  // bytes
  int64_t line;         // or row, from 1
};

class RecordFile {
 public:
  // DataError 272: a list that is not closed; 273: it cannot be unpacked; 281: nor kept in memory.
  explicit RecordFile(const std::string& path);
  const std::vector<Record>& records() const { return records_; }
  std::string_view text(const Record& record) const { return whole().substr(record.offset, record.size); }
  std::string where(const Record& record) const;  // "chat.jsonl line 3 (byte 120)"
  // Records to look at by one thread at a time: [first, last) each.
  std::vector<std::pair<size_t, size_t>> pieces() const;

 private:
  std::string_view whole() const { return packed_ ? std::string_view(unpacked_) : file_.text(); }
  void unpack();
  void read_rows(ColumnForm form);
  void find_lines(std::string_view text, size_t begin);
  void find_elements(std::string_view text, size_t begin);
  base::MappedFile file_;
  bool packed_ = false;  // the text is in unpacked_
  bool rows_ = false;    // of columns
  std::string unpacked_;
  std::vector<Record> records_;
};

// Top-level keys of the first object, as far as they can be read from its first MiB, or the names of its
// columns; none: it is no such file.
std::vector<std::string> first_keys(const std::string& path);

}  // namespace lockstep::data
