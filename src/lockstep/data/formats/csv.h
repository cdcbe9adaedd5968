// Records of CSV and TSV, as RFC 4180 has them: fields in quotes may hold separators, newlines and quotes
// ("" is one). A quote inside a field that does not begin with one is a character like any other, as for
// Python's csv module; anything behind a closing quote is a fault.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

struct CsvRecord {
  size_t end = 0;      // behind its newline
  size_t fields = 0;   // 0: an empty line
  bool closed = true;  // false: a quote is open at the end of the text
  bool clean = true;   // false: something stands behind a closing quote
  bool whole = true;   // false: the text ends before its newline
};

// The record that begins at `at`; the field number `wanted` into `value`, if it has so many.
CsvRecord read_record(std::string_view text, size_t at, char separator, size_t wanted, std::string& value);

// All fields of the record at the beginning.
std::vector<std::string> fields_of(std::string_view text, char separator, CsvRecord& record);

}  // namespace lockstep::data
