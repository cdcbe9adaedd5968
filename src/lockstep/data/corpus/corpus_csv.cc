// CSV and TSV: the first record names the columns, and every further one is a document, the text of one
// column.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/corpus/corpus.h"
#include "lockstep/data/formats/csv.h"
#include "lockstep/data/formats/text_parts.h"

namespace lockstep::data {
namespace {

constexpr size_t kLongestHeader = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Quotes count from the beginning of a record, so a part is read from its beginning to know where it may end.
size_t behind_record(std::string_view text, size_t from, char separator) {
  std::string ignored;
  for (size_t at = 0; at < text.size();) {
    const CsvRecord record = read_record(text, at, separator, std::string_view::npos, ignored);
    if (!record.whole) return std::string_view::npos;
    if (record.end >= from) return record.end;
    at = record.end;
  }
  return std::string_view::npos;
}

class CsvCorpus final : public CorpusReader {
 public:
  CsvCorpus(const std::string& file, const CorpusOptions& options, char separator)
      : separator_(separator),
        field_(options.field),
        parts_(file, {.part = options.part,
                      .longest = kLongestDocument,
                      .find = [separator](std::string_view text,
                                          size_t from) { return behind_record(text, from, separator); },
                      .pass_over_long_lines = true}) {
    read_header(file);
  }
  int64_t size() const override { return parts_.size(); }
  std::optional<CorpusPart> next_part() override { return parts_.next(); }

  void each_document(const CorpusPart& part, const std::function<void(const Document&)>& use,
                     const std::function<void(const BadDocument&)>& bad) const override {
    std::string value;
    for (size_t at = part.begins ? header_ : 0; at < part.bytes.size();) {
      const CsvRecord record = read_record(part.bytes, at, separator_, column_, value);
      const size_t here = at;
      at = record.end;
      if (!record.closed) {
        throw base::DataError(
            274, fmt::format("{} has a quote that is not closed: a field is longer than 64 MiB, or a quote "
                             "in it is not doubled; correct that row",
                             where(part, here)));
      }
      if (record.fields == 0) continue;
      if (!record.clean || record.fields != columns_.size()) {
        bad({274, where(part, here) + (record.clean
                                           ? fmt::format(" has {} fields, but the first line names {}",
                                                         record.fields, columns_.size())
                                           : " has something between a closing quote and the next field")});
      } else if (const auto fault = unusable(value, where(part, here))) {
        bad(*fault);
      } else {
        use({.text = value, .begins = true, .ends = true});
      }
    }
  }

 private:
  void read_header(const std::string& file) {
    const std::string begin = first_bytes_of(file, kLongestHeader);
    if (begin.empty()) return;
    const size_t mark = begin.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    CsvRecord record;
    columns_ = fields_of(std::string_view(begin).substr(mark), separator_, record);
    header_ = mark + record.end;
    if (!record.closed || !record.clean || (!record.whole && begin.size() == kLongestHeader)) {
      throw base::DataError(274, fmt::format("{} does not begin with a line of column names: a quote there "
                                             "is not closed, or the line is longer than 1 MiB",
                                             file));
    }
    const auto found = std::find(columns_.begin(), columns_.end(), field_);
    if (found == columns_.end()) refuse_column(file, field_, columns_);
    column_ = static_cast<size_t>(found - columns_.begin());
  }

  std::string where(const CorpusPart& part, size_t start) const {
    const std::string_view before = part.bytes.substr(0, start);
    return fmt::format("{} line {} (byte {})", parts_.path(),
                       part.first_line + std::count(before.begin(), before.end(), '\n'),
                       part.offset + static_cast<int64_t>(start));
  }

  char separator_;
  std::string field_;
  TextParts parts_;
  std::vector<std::string> columns_;
  size_t column_ = 0, header_ = 0;  // which one; bytes of the first line
};

}  // namespace

CorpusFormat csv_corpus() {
  return {.name = "CSV",
          .endings = {".csv"},
          .packed = true,
          .open = [](const std::string& file, const CorpusOptions& options) -> std::unique_ptr<CorpusReader> {
            return std::make_unique<CsvCorpus>(file, options, ',');
          }};
}

CorpusFormat tsv_corpus() {
  return {.name = "TSV",
          .endings = {".tsv", ".tab"},
          .packed = true,
          .open = [](const std::string& file, const CorpusOptions& options) -> std::unique_ptr<CorpusReader> {
            return std::make_unique<CsvCorpus>(file, options, '\t');
          }};
}

}  // namespace lockstep::data
