#include "lockstep/data/formats/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/formats/kept.h"
#include "lockstep/data/formats/unpack.h"

namespace lockstep::data {
namespace {

constexpr size_t kPiece = size_t{1} << 20, kLookedAt = size_t{1} << 20, kKeys = 256;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf", kSpace = " \t\r\n";

size_t begin_of(std::string_view text) {
  return text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
}

// Walks over JSON without reading it: where values end.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}

  // Behind the value that begins at `at`; npos: it does not end.
  size_t end_of_value(size_t at) {
    int64_t depth = 0;
    for (; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c == '"') {
        at = end_of_string(at);
        if (at == std::string_view::npos) return at;
        if (depth == 0) return at + 1;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        if (depth == 0) return at;
        if (--depth == 0) return at + 1;
      } else if (depth == 0 && (c == ',' || kSpace.find(c) != std::string_view::npos)) {
        return at;
      }
    }
    return std::string_view::npos;
  }

 private:
  size_t end_of_string(size_t at) const {
    for (++at; at < text_.size(); ++at) {
      if (text_[at] == '\\') {
        ++at;
      } else if (text_[at] == '"') {
        return at;
      }
    }
    return std::string_view::npos;
  }
  std::string_view text_;
};

// Collects keys and skips all else.
class Keys final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<std::string> keys;
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return ++depth_ > 0; }
  bool end_object() override { return --depth_ > 0; }  // behind the first object there is nothing to see
  bool start_array(size_t) override { return ++depth_ > 0; }
  bool end_array() override { return --depth_ > 0; }
  bool key(string_t& name) override {
    if (depth_ == 1 && keys.size() < kKeys) keys.push_back(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  int64_t depth_ = 0;
};

// An object over many lines, and nothing behind it.
bool is_one_object(std::string_view text, size_t first) {
  const std::string_view line =
      base::trimmed(text.substr(first, std::min(text.find('\n', first), text.size()) - first));
  if (text[first] != '{' || line.ends_with('}')) return false;
  const size_t end = Walker(text).end_of_value(first);
  return end != std::string_view::npos && text.find_first_not_of(kSpace, end) == std::string_view::npos;
}

std::optional<ColumnForm> columns_in(std::string_view first_bytes) {
  if (first_bytes.starts_with("PAR1")) return ColumnForm::parquet;
  if (first_bytes.starts_with("ARROW1")) return ColumnForm::arrow_file;
  if (first_bytes.starts_with("\xff\xff\xff\xff")) return ColumnForm::arrow_stream;
  return std::nullopt;
}

}  // namespace

RecordFile::RecordFile(const std::string& path)
    : file_(base::MappedFile::open(path)), packed_(is_packed(path)) {
  if (const std::optional<ColumnForm> form = columns_in(file_.text())) {
    read_rows(*form);
    return;
  }
  if (packed_) unpack();
  const std::string_view text = whole();
  refuse_utf16(path, text);
  const size_t begin = begin_of(text), first = text.find_first_not_of(kSpace, begin);
  if (first == std::string_view::npos) return;
  if (text[first] == '[' || is_one_object(text, first)) {
    find_elements(text, first);
  } else {
    find_lines(text, begin);
  }
}

void RecordFile::read_rows(ColumnForm form) {
  packed_ = rows_ = true;
  KeptInMemory kept;
  const auto column = open_column({.file = file_.path(), .field = "", .form = form, .rows = true});
  for (ColumnRows rows; column->next(rows);) {
    const size_t before = unpacked_.size();
    kept.add(rows.bytes.size(), file_.path());
    unpacked_ += rows.bytes;
    for (size_t i = 0; i < rows.size(); ++i)
      records_.push_back({.offset = before + static_cast<size_t>(rows.begin_of(i)),
                          .size = rows.text(i).size(),
                          .line = rows.first + static_cast<int64_t>(i) + 1});
  }
}

void RecordFile::unpack() {
  KeptInMemory kept;
  const auto source = open_packed(file_.path());
  for (size_t filled = 0;;) {
    unpacked_.resize(filled + kPiece);
    const size_t count = source->read(std::span(unpacked_).subspan(filled));
    filled += count;
    kept.add(count, file_.path());
    if (count > 0) continue;
    unpacked_.resize(filled);
    return;
  }
}

void RecordFile::find_lines(std::string_view text, size_t begin) {
  int64_t line = 1;
  for (size_t start = begin; start < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', start), text.size());
    if (text.substr(start, end - start).find_first_not_of(kSpace) != std::string_view::npos)
      records_.push_back({.offset = start, .size = end - start, .line = line});
    start = end + 1;
  }
}

void RecordFile::find_elements(std::string_view text, size_t begin) {
  Walker walker(text);
  const bool list = text[begin] == '[';
  int64_t line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin), '\n');
  size_t counted = begin;
  const auto refuse = [&](size_t at) {
    throw base::DataError(
        272, fmt::format("{} (byte {}) is not a list of JSON objects: an element, a comma or the "
                         "list's end is missing; fix the file, or write one object per line",
                         file_.path(), at));
  };
  for (size_t at = list ? text.find_first_not_of(kSpace, begin + 1) : begin;;) {
    if (at == std::string_view::npos) refuse(text.size());
    if (list && text[at] == ']' && records_.empty()) return;
    const size_t end = text[at] == ',' || text[at] == ']' ? std::string_view::npos : walker.end_of_value(at);
    if (end == std::string_view::npos) refuse(at);
    const auto place = [&](size_t byte) { return text.begin() + static_cast<std::ptrdiff_t>(byte); };
    line += std::count(place(counted), place(at), '\n');
    counted = at;
    records_.push_back({.offset = at, .size = end - at, .line = line});
    if (!list) return;
    at = text.find_first_not_of(kSpace, end);
    if (at == std::string_view::npos || (text[at] != ',' && text[at] != ']'))
      refuse(std::min(at, text.size()));
    if (text[at] == ']') return;
    at = text.find_first_not_of(kSpace, at + 1);
  }
}

std::string RecordFile::where(const Record& record) const {
  if (rows_) return fmt::format("{} row {}", file_.path(), record.line);
  return fmt::format("{} line {} (byte {})", file_.path(), record.line, record.offset);
}

std::vector<std::pair<size_t, size_t>> RecordFile::pieces() const {
  std::vector<std::pair<size_t, size_t>> all;
  size_t first = 0, bytes = 0;
  for (size_t i = 0; i < records_.size(); ++i) {
    bytes += records_[i].size;
    if (bytes < kPiece && i + 1 < records_.size()) continue;
    all.emplace_back(first, i + 1);
    first = i + 1, bytes = 0;
  }
  return all;
}

std::vector<std::string> first_keys(const std::string& path) {
  const std::string bytes = first_bytes_of(path, kLookedAt);
  if (const std::optional<ColumnForm> form = columns_in(bytes)) {
    if (!has_arrow()) return {};
    return open_column({.file = path, .field = "", .form = *form, .rows = true})->names();
  }
  size_t first = bytes.find_first_not_of(kSpace, begin_of(bytes));
  if (first != std::string::npos && bytes[first] == '[') first = bytes.find_first_not_of(kSpace, first + 1);
  if (first == std::string::npos || bytes[first] != '{') return {};
  Keys keys;
  nlohmann::json::sax_parse(bytes.begin() + static_cast<std::ptrdiff_t>(first), bytes.end(), &keys);
  return keys.keys;
}

}  // namespace lockstep::data
