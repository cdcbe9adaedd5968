#include "lockstep/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/data/kind.h"

namespace lockstep::data {
namespace {

std::string in_small_letters(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void refuse_foreign(const std::string& file) {
  char begin[16] = {};
  std::ifstream stream(file, std::ios::binary);
  stream.read(begin, sizeof begin);
  const std::string_view format =
      foreign_format({begin, static_cast<size_t>(std::max<std::streamsize>(0, stream.gcount()))});
  if (format.empty()) return;
  throw base::DataError(
      236, fmt::format("{} is {}, which is not read: unpack or convert it to text or JSONL", file, format));
}

}  // namespace

const std::vector<CorpusFormat>& corpus_formats() {
  static const std::vector<CorpusFormat> all = {jsonl_corpus(), text_corpus()};
  return all;
}

std::unique_ptr<CorpusReader> open_corpus(const std::string& file, const CorpusOptions& options) {
  refuse_foreign(file);
  const std::string name = in_small_letters(file);
  const auto claims = [&](const CorpusFormat& format) {
    return format.endings.empty() ||
           std::any_of(format.endings.begin(), format.endings.end(),
                       [&](const std::string& ending) { return name.ends_with(ending); });
  };
  const std::vector<CorpusFormat>& all = corpus_formats();
  const auto format = std::find_if(all.begin(), all.end(), claims);
  LS_ASSERT(format != all.end());
  return format->open(file, options);
}

}  // namespace lockstep::data
