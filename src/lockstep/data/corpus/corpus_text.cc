// Plain text: a file is a document, cut between words into parts where the tokenizer allows it.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/corpus/corpus.h"
#include "lockstep/data/formats/text_parts.h"

namespace lockstep::data {
namespace {

constexpr size_t kLongestPart =
    size_t{256} << 20;  // a document that cannot be cut; it takes about 30 times as much memory

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The first place where the text may be cut: x| y.
size_t between_words(std::string_view text, size_t at) {
  for (at = text.find(' ', at); at < text.size() && at + 1 < text.size(); at = text.find(' ', at + 1)) {
    if (is_letter(text[at - 1]) && is_letter(text[at + 1])) return at;
  }
  return std::string_view::npos;
}

size_t behind_newline(std::string_view text, size_t from) {
  const size_t newline = text.find('\n', from);
  return newline == std::string_view::npos ? newline : newline + 1;
}

size_t nowhere(std::string_view, size_t) { return std::string_view::npos; }

class TextCorpus final : public CorpusReader {
 public:
  TextCorpus(const std::string& file, const CorpusOptions& options)
      : parts_(file, {.part = options.part,
                      .longest = kLongestPart,
                      .find = options.by_lines  ? behind_newline
                              : options.may_cut ? between_words
                                                : nowhere}),
        by_lines_(options.by_lines) {}
  int64_t size() const override { return parts_.size(); }

  std::optional<CorpusPart> next_part() override {
    std::optional<CorpusPart> part = parts_.next();
    if (part && part->bytes.size() > kLongestPart) {
      throw base::DataError(
          214,
          fmt::format("{} has {} or more from byte {} on that must be one piece for this tokenizer, and more "
                      "than {} are not taken: write it as several documents (JSONL)",
                      parts_.path(), base::human_bytes(static_cast<double>(part->bytes.size())), part->offset,
                      base::human_bytes(static_cast<double>(kLongestPart))));
    }
    return part;
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
  TextParts parts_;
  bool by_lines_;
};

}  // namespace

CorpusFormat text_corpus() {
  return {.name = "text",
          .endings = {},
          .packed = true,
          .open = [](const std::string& file, const CorpusOptions& options) -> std::unique_ptr<CorpusReader> {
            return std::make_unique<TextCorpus>(file, options);
          }};
}

}  // namespace lockstep::data
