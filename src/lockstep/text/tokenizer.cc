#include "lockstep/text/tokenizer.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text.h"
#include "lockstep/text/fault.h"
#include "lockstep/text/kinds.h"

namespace lockstep::text {
namespace {

namespace fs = std::filesystem;

// The first that knows the file's first bytes reads it; in a folder, the first whose name is there.
const FileKind* const kKinds[] = {&kTekken, &kTokenizerJson, &kTiktoken, &kSentencePiece};
const FileKind* const kInFolders[] = {&kTokenizerJson, &kTekken, &kTiktoken, &kSentencePiece};

constexpr size_t kLookedAt = 65536;

const FileKind& kind_of(const std::string& path, std::string_view bytes) {
  for (const FileKind* kind : kKinds) {
    if (kind->is(bytes.substr(0, kLookedAt))) return *kind;
  }
  throw base::DataError(
      241, fmt::format("{} is no tokenizer: a tokenizer.json, a tiktoken file, a SentencePiece .model or "
                       "mistral's tekken.json is expected",
                       path));
}

}  // namespace

std::string find_tokenizer(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path;
  if (!fs::is_directory(path, error)) return "";
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.is_regular_file(error)) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  for (const FileKind* kind : kInFolders) {
    for (const std::string& name : names) {
      if (fnmatch(kind->pattern, name.c_str(), 0) == 0) return (fs::path(path) / name).string();
    }
  }
  return "";
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) {
  const std::string file = find_tokenizer(path);
  if (file.empty()) {
    throw base::ConfigError(
        240, fmt::format("{} is no tokenizer: name a tokenizer.json, a *.tiktoken, a tokenizer.model, a "
                         "tekken.json, or a folder that holds one",
                         base::quoted(path, 200)));
  }
  const base::MappedFile mapped = base::MappedFile::open(file);
  const FileKind& kind = kind_of(file, mapped.text());
  try {
    return kind.open(file, mapped.text());
  } catch (const Fault& fault) {
    throw base::DataError(fault.number, fmt::format("{}: {}", file, fault.sentence));
  }
}

}  // namespace lockstep::text
