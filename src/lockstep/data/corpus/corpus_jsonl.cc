// JSONL: a line is a document, the text of one field.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text.h"
#include "lockstep/data/corpus/corpus.h"
#include "lockstep/data/formats/jsonl_field.h"
#include "lockstep/data/formats/text_parts.h"

namespace lockstep::data {
namespace {

size_t behind_newline(std::string_view text, size_t from) {
  const size_t newline = text.find('\n', from);
  return newline == std::string_view::npos ? newline : newline + 1;
}

class JsonlCorpus final : public CorpusReader {
 public:
  JsonlCorpus(const std::string& file, const CorpusOptions& options)
      : parts_(file, {.part = options.part,
                      .longest = kLongestDocument,
                      .find = behind_newline,
                      .pass_over_long_lines = true}),
        field_(options.field) {}
  int64_t size() const override { return parts_.size(); }
  std::optional<CorpusPart> next_part() override { return parts_.next(); }

  void each_document(const CorpusPart& part, const std::function<void(const Document&)>& use,
                     const std::function<void(const BadDocument&)>& bad) const override {
    std::string value;
    FieldFault fault;
    for (size_t start = 0; start < part.bytes.size();) {
      const size_t end = std::min(part.bytes.find('\n', start), part.bytes.size());
      const std::string_view line = part.bytes.substr(start, end - start);
      const size_t here = start;
      start = end + 1;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      bool good = line.size() <= kLongestDocument;
      if (!good) {
        fault = {214, 0, "is longer than 64 MiB"};
      } else {
        good = read_field(line, field_, value, fault);
      }
      if (good) {
        use({.text = value, .begins = true, .ends = true});
      } else {
        bad({fault.number, where(part, here, fault)});
      }
    }
  }

 private:
  std::string where(const CorpusPart& part, size_t line_start, const FieldFault& fault) const {
    const std::string_view before = part.bytes.substr(0, line_start);
    return fmt::format("{} line {} (byte {}) {}", parts_.path(),
                       part.first_line + std::count(before.begin(), before.end(), '\n'),
                       static_cast<size_t>(part.offset) + line_start + fault.offset, fault.reason);
  }

  TextParts parts_;
  std::string field_;
};

}  // namespace

bool is_jsonl(std::string_view first_bytes) {
  if (first_bytes.starts_with("\xef\xbb\xbf")) first_bytes.remove_prefix(3);
  const std::string_view line = base::trimmed(first_bytes.substr(0, first_bytes.find('\n')));
  return line.size() > 1 && line.front() == '{' && line.back() == '}';
}

CorpusFormat jsonl_corpus() {
  return {.name = "JSONL",
          .endings = {".jsonl", ".ndjson"},
          .packed = true,
          .open = [](const std::string& file, const CorpusOptions& options) -> std::unique_ptr<CorpusReader> {
            return std::make_unique<JsonlCorpus>(file, options);
          }};
}

}  // namespace lockstep::data
