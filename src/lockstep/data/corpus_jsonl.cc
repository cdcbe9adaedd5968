// JSONL: a line is a document, the text of one field.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/mapped_file.h"
#include "lockstep/data/corpus.h"
#include "lockstep/data/jsonl_field.h"

namespace lockstep::data {
namespace {

constexpr size_t kPart = size_t{1} << 20;
constexpr size_t kLongestLine = size_t{64} << 20;

class JsonlCorpus final : public CorpusReader {
 public:
  JsonlCorpus(base::MappedFile file, std::string field) : file_(std::move(file)), field_(std::move(field)) {}
  int64_t size() const override { return file_.size(); }

  std::optional<CorpusPart> next_part() override {
    const std::string_view text = file_.text();
    if (at_ >= text.size()) return std::nullopt;
    const size_t begin = at_, newline = text.find('\n', std::min(begin + kPart, text.size()));
    at_ = newline == std::string_view::npos ? text.size() : newline + 1;
    return CorpusPart{.bytes = text.substr(begin, at_ - begin), .offset = static_cast<int64_t>(begin)};
  }

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
      bool good = line.size() <= kLongestLine;
      if (!good) {
        fault = {214, 0, "is longer than 64 MiB"};
      } else {
        good = read_field(line, field_, value, fault);
      }
      if (good) {
        use({.text = value, .begins = true, .ends = true});
      } else {
        bad({fault.number, where(static_cast<size_t>(part.offset) + here, fault)});
      }
    }
  }

 private:
  std::string where(size_t line_start, const FieldFault& fault) const {
    const std::string_view before = file_.text().substr(0, line_start);
    return fmt::format("{} line {} (byte {}) {}", file_.path(),
                       std::count(before.begin(), before.end(), '\n') + 1, line_start + fault.offset,
                       fault.reason);
  }

  base::MappedFile file_;
  std::string field_;
  size_t at_ = 0;
};

}  // namespace

CorpusFormat jsonl_corpus() {
  return {.name = "jsonl",
          .endings = {".jsonl", ".ndjson"},
          .open = [](const std::string& file, const CorpusOptions& options) -> std::unique_ptr<CorpusReader> {
            return std::make_unique<JsonlCorpus>(base::MappedFile::open(file), options.field);
          }};
}

}  // namespace lockstep::data
