// Plain text: a file is a document, cut between words into parts where the tokenizer allows it.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/corpus.h"

namespace lockstep::data {
namespace {

constexpr size_t kPart = size_t{1} << 20;
constexpr size_t kLongestPart =
    size_t{256} << 20;  // a document that cannot be cut; it takes about 30 times as much memory

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class TextCorpus final : public CorpusReader {
 public:
  TextCorpus(base::MappedFile file, const CorpusOptions& options)
      : file_(std::move(file)), may_cut_(options.may_cut), by_lines_(options.by_lines) {}
  int64_t size() const override { return file_.size(); }

  std::optional<CorpusPart> next_part() override {
    const std::string_view text = file_.text();
    if (at_ >= text.size()) return std::nullopt;
    const size_t begin = at_, end = cut(begin + kPart);
    if (end - begin > kLongestPart) {
      throw base::DataError(
          214,
          fmt::format("{} has {} from byte {} on that must be one piece for this tokenizer, and more than {} "
                      "are not taken: write it as several documents (JSONL)",
                      file_.path(), base::human_bytes(static_cast<double>(end - begin)), begin,
                      base::human_bytes(static_cast<double>(kLongestPart))));
    }
    at_ = end;
    return CorpusPart{.bytes = text.substr(begin, end - begin),
                      .offset = static_cast<int64_t>(begin),
                      .begins = begin == 0,
                      .ends = end == text.size()};
  }

  void each_document(const CorpusPart& part, const std::function<void(const Document&)>& use,
                     const std::function<void(const BadDocument&)>&) const override {
    if (!by_lines_) return use({.text = part.bytes, .begins = part.begins, .ends = part.ends});
    for (std::string_view left = part.bytes; !left.empty();) {
      const std::string_view line = left.substr(0, std::min(left.find('\n'), left.size() - 1) + 1);
      use({.text = line, .begins = true, .ends = true});
      left.remove_prefix(line.size());
    }
  }

 private:
  // The first place from `at` on where the text may be cut: x| y.
  size_t cut(size_t at) const {
    const std::string_view text = file_.text();
    if (by_lines_) return std::min(text.find('\n', std::min(at, text.size())), text.size() - 1) + 1;
    if (!may_cut_) return text.size();
    for (at = text.find(' ', at); at < text.size() && at + 1 < text.size(); at = text.find(' ', at + 1)) {
      if (is_letter(text[at - 1]) && is_letter(text[at + 1])) return at;
    }
    return text.size();
  }

  base::MappedFile file_;
  bool may_cut_, by_lines_;
  size_t at_ = 0;
};

}  // namespace

CorpusFormat text_corpus() {
  return {.name = "text",
          .endings = {},
          .open = [](const std::string& file, const CorpusOptions& options) -> std::unique_ptr<CorpusReader> {
            return std::make_unique<TextCorpus>(base::MappedFile::open(file), options);
          }};
}

}  // namespace lockstep::data
