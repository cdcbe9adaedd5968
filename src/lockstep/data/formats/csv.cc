#include "lockstep/data/formats/csv.h"

#include <algorithm>

namespace lockstep::data {
namespace {

// Reads field by field; `take` gets each piece of each field.
template <class Take>
CsvRecord scan_record(std::string_view text, size_t at, char separator, const Take& take) {
  CsvRecord record;
  const char ends[] = {separator, '\n'};
  const std::string_view stops(ends, 2);
  const size_t begin = at;
  for (;; ++at) {
    const size_t field = record.fields++;
    take(field, std::string_view{});
    if (at < text.size() && text[at] == '"') {
      for (++at;;) {
        const size_t quote = text.find('"', at);
        take(field, text.substr(at, quote - at));
        if (quote == std::string_view::npos) {
          record.closed = record.whole = false;
          record.end = text.size();
          return record;
        }
        at = quote + 1;
        if (at >= text.size() || text[at] != '"') break;
        take(field, "\"");
        ++at;
      }
      size_t stop = std::min(text.find_first_of(stops, at), text.size());
      const std::string_view behind = text.substr(at, stop - at);
      record.clean =
          record.clean && (behind.empty() || (behind == "\r" && (stop == text.size() || text[stop] == '\n')));
      at = stop;
    } else {
      const size_t stop = std::min(text.find_first_of(stops, at), text.size());
      std::string_view plain = text.substr(at, stop - at);
      if (plain.ends_with('\r') && (stop == text.size() || text[stop] == '\n')) plain.remove_suffix(1);
      if (field == 0 && plain.empty() && (stop == text.size() || text[stop] == '\n')) record.fields = 0;
      take(field, plain);
      at = stop;
    }
    if (at < text.size() && text[at] == separator) continue;
    record.whole = at < text.size();
    record.end = std::max(std::min(at + 1, text.size()), begin);
    return record;
  }
}

}  // namespace

CsvRecord read_record(std::string_view text, size_t at, char separator, size_t wanted, std::string& value) {
  value.clear();
  return scan_record(text, at, separator, [&](size_t field, std::string_view piece) {
    if (field == wanted) value += piece;
  });
}

std::vector<std::string> fields_of(std::string_view text, char separator, CsvRecord& record) {
  std::vector<std::string> fields;
  record = scan_record(text, 0, separator, [&](size_t field, std::string_view piece) {
    fields.resize(std::max(fields.size(), field + 1));
    fields[field] += piece;
  });
  return fields;
}

}  // namespace lockstep::data
