#include "lockstep/data/corpus/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/formats/mds.h"
#include "lockstep/data/formats/unpack.h"
#include "lockstep/data/kind.h"
#include "lockstep/text/utf8.h"

namespace lockstep::data {
namespace {

std::string in_small_letters(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

const CorpusFormat& format_of(const std::string& name, std::string_view begin) {
  const std::vector<CorpusFormat>& all = corpus_formats();
  const auto by_bytes = std::find_if(all.begin(), all.end(), [&](const CorpusFormat& format) {
    return !format.begins.empty() && begin.starts_with(format.begins);
  });
  if (by_bytes != all.end()) return *by_bytes;
  const auto by_name = std::find_if(all.begin(), all.end(), [&](const CorpusFormat& format) {
    return format.endings.empty() ||
           std::any_of(format.endings.begin(), format.endings.end(),
                       [&](const std::string& ending) { return name.ends_with(ending); });
  });
  LS_ASSERT(by_name != all.end());
  return *by_name;
}

// A name that ends with .json does not tell: objects line by line are JSONL, and one document is refused.
const CorpusFormat& format_of_json(const std::string& file, const CorpusFormat& plain) {
  constexpr size_t kLookedAt = size_t{1} << 20;
  const std::string begin = first_bytes_of(file, kLookedAt);
  if (is_jsonl(begin)) return corpus_formats().front();
  const size_t first = begin.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || (begin[first] != '{' && begin[first] != '[')) return plain;
  throw base::DataError(
      236, fmt::format("{} is a single JSON document, which is not read: write one object per line (jsonl)",
                       file));
}

}  // namespace

const std::vector<CorpusFormat>& corpus_formats() {
  static const std::vector<CorpusFormat> all = {jsonl_corpus(),   csv_corpus(),   tsv_corpus(),
                                                parquet_corpus(), arrow_corpus(), arrow_stream_corpus(),
                                                mds_corpus(),     text_corpus()};  // the last takes any
  return all;
}

std::unique_ptr<CorpusReader> open_corpus(const std::string& file, const CorpusOptions& options) {
  const bool packed = is_packed(file);
  const std::string begin = first_bytes_of(file, 16);
  const std::string name = in_small_letters(packed ? without_packing(file) : file);
  const CorpusFormat& by_name = format_of(name, begin);
  const bool as_text = options.as_text && by_name.begins.empty();
  if (!as_text && by_name.begins.empty()) refuse_utf16(file, begin);
  const bool json = by_name.endings.empty() && name.ends_with(".json");
  const CorpusFormat& format = as_text ? corpus_formats().back()
                               : json  ? format_of_json(file, by_name)
                                       : by_name;
  if (packed && !format.packed) {
    throw base::DataError(
        236, fmt::format("{} is a compressed {} file, which is not read: unpack it", file, format.name));
  }
  const std::string_view foreign = format.begins.empty() ? foreign_format(begin) : "";
  if (!foreign.empty()) {
    throw base::DataError(
        236,
        fmt::format("{} is {}, which is not read: unpack or convert it to text or JSONL", file, foreign));
  }
  return format.open(file, options);
}

int64_t corpus_bytes(const std::string& file) {
  if (is_mds_index(file)) return mds_bytes(file);
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  return error ? 0 : static_cast<int64_t>(size);
}

void refuse_column(const std::string& file, const std::string& field,
                   const std::vector<std::string>& columns) {
  constexpr size_t kMostShown = 20, kLongestName = 60;  // the file may be hostile
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(columns.size(), kMostShown); ++i)
    names.push_back(base::quoted(columns[i], kLongestName));
  throw base::DataError(
      212, fmt::format("{} has no column {}, only {}{}; name one of them with data.field or --field", file,
                       base::quoted(field, kLongestName), base::join(names, ", "),
                       columns.size() > kMostShown ? ", ..." : ""));
}

std::optional<BadDocument> unusable(std::string_view text, const std::string& what) {
  if (text.size() > kLongestDocument)
    return BadDocument{214, fmt::format("{} has a text longer than 64 MiB", what)};
  const size_t whole = text::whole_prefix(text);
  if (whole == text.size()) return std::nullopt;
  return BadDocument{275, fmt::format("{} has a text that is not UTF-8 at its byte {}", what, whole)};
}

}  // namespace lockstep::data
