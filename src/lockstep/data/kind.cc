#include "lockstep/data/kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/documents/chat.h"
#include "lockstep/data/documents/encoded_records.h"
#include "lockstep/data/formats/files.h"
#include "lockstep/data/formats/mds.h"
#include "lockstep/data/formats/records.h"
#include "lockstep/data/formats/unpack.h"
#include "lockstep/data/mix.h"
#include "lockstep/recipe/path_list.h"
#include "lockstep/store/uri.h"

namespace lockstep::data {
namespace {

constexpr size_t kLookedAt = 4096;  // bytes of a file

struct Format {
  std::string_view begins, name;
};
constexpr Format kForeign[] = {
    {"\x1f\x8b", "a gzip file"},
    {"\x28\xb5\x2f\xfd", "a zstd file"},
    {"BZh", "a bzip2 archive"},
    {"\xfd"
     "7zXZ",
     "an xz archive"},
    {"PK\x03\x04", "a zip archive"},
    {"PAR1", "a Parquet file"},
    {"ARROW1", "an Arrow file"},
    {"\x89HDF", "an HDF5 file"},
};

std::string ending_of(const std::string& file) {
  const size_t slash = file.rfind('/'), point = file.rfind('.');
  if (point == std::string::npos || (slash != std::string::npos && point < slash)) return "";
  std::string ending = file.substr(point);
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending;
}

std::string kind_by_name(const std::string& packed) {
  const std::string file = without_packing(packed), ending = ending_of(file);
  for (const DatasetKind& kind : dataset_kinds()) {
    const std::vector<std::string>& own = kind.files.endings;
    if (std::find(own.begin(), own.end(), ending) != own.end()) return kind.name;
  }
  return "";
}

// Whoever names one of the keys as the field that is read means documents, whatever else they hold.
std::string kind_by_keys(const std::vector<std::string>& keys, const std::string& field) {
  const bool named = field != "text" && std::find(keys.begin(), keys.end(), field) != keys.end();
  if (keys.empty() || named) return "";
  for (const DatasetKind& kind : dataset_kinds()) {
    if (kind.files.claims && kind.files.claims(keys)) return kind.name;
  }
  return "";
}

std::string kind_by_first_bytes(std::string_view bytes) {
  for (const DatasetKind& kind : dataset_kinds()) {
    for (const std::string& begin : kind.files.begins) {
      if (bytes.starts_with(begin)) return kind.name;
    }
  }
  return "";
}

// What anything may be is asked last.
std::string kind_by_looks(const std::string& ending, std::string_view bytes) {
  for (const bool plain : {false, true}) {
    for (const DatasetKind& kind : dataset_kinds()) {
      if (kind.plain == plain && kind.files.looks_like && kind.files.looks_like(ending, bytes))
        return kind.name;
    }
  }
  return "";
}

// The first row of which it holds; built-in rows see to it that there is one.
std::string first_kind(bool (*holds)(const DatasetKind&)) {
  const std::vector<DatasetKind>& all = dataset_kinds();
  const auto found = std::find_if(all.begin(), all.end(), holds);
  LS_ASSERT(found != all.end());
  return found->name;
}
std::string plain_kind() {
  return first_kind([](const DatasetKind& kind) { return kind.plain; });
}

[[noreturn]] void refuse(const std::string& why) {
  throw base::ConfigError(208, fmt::format("data.kind = \"auto\": {}", why));
}

// Empty: nothing in it that tells.
std::string kind_of(const std::string& packed, const std::string& field) {
  if (store::is_uri(packed)) return kind_by_name(store::parse_uri(packed).path);  // too large to be here
  const std::string bytes = first_bytes_of(packed, kLookedAt);
  const std::string file = is_packed(packed) ? without_packing(packed) : packed;
  if (is_mds_index(packed)) return "mds";
  if (const std::string kind = kind_by_first_bytes(bytes); !kind.empty()) return kind;
  if (const std::string_view format = foreign_format(bytes); !format.empty())
    refuse(fmt::format("{} is {}, which is not supported; unpack it or convert it to text, JSONL or tokens",
                       file, format));
  const std::string ending = ending_of(file);
  if (const std::string kind = kind_by_keys(keys_of_records(ending, packed), field); !kind.empty())
    return kind;
  if (const std::string kind = kind_by_name(file); !kind.empty()) return kind;
  if (bytes.empty()) return "";
  if (const std::string kind = kind_by_looks(ending, bytes); !kind.empty()) return kind;
  if (ending != ".bin") refuse_utf16(file, bytes);
  if (ending == ".json") {
    refuse(
        fmt::format("{} is a single JSON document; write one object per line (jsonl), or set data.kind=text "
                    "to train on its bytes",
                    file));
  }
  refuse(
      fmt::format("{} is not text, and its name does not say what it is; set data.kind=tokens for token "
                  "files, or data.kind=text to train on its bytes",
                  file));
}

// "jsonl (a.jsonl and 2 more), text (README.md)".
std::string counts_text(const std::map<std::string, std::vector<std::string>>& kinds) {
  std::vector<std::string> parts;
  for (const auto& [kind, files] : kinds) {
    parts.push_back(fmt::format("{} ({}{})", kind, files.front(),
                                files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : ""));
  }
  return base::join(parts, ", ");
}

// A path beside a kind that reads no files.
void refuse_useless_path(recipe::Resolved& resolved) {
  const auto& data = resolved.recipe.data;
  const std::string& makes = find_kind(data.kind).makes;
  if (makes.empty() || data.path.empty()) return;
  throw base::ConfigError(
      209,
      fmt::format("data.kind = \"{}\" ({}) generates its own {} and reads no files, but data.path = {} ({}) "
                  "is set; set data.kind=auto to detect the kind from the files, or remove data.path",
                  data.kind, resolved.origin["data.kind"], makes, base::quoted(data.path, 200),
                  resolved.origin["data.path"]));
}

}  // namespace

std::string_view foreign_format(std::string_view first_bytes) {
  for (const Format& format : kForeign) {
    if (first_bytes.starts_with(format.begins)) return format.name;
  }
  return "";
}

std::string infer_kind(const std::string& path, bool must_exist, const std::string& field) {
  if (path.empty()) return first_kind([](const DatasetKind& kind) { return !kind.makes.empty(); });
  std::vector<std::string> files;
  try {
    files = find_files({.key = "data.path", .path = path, .remote = FileQuery::Remote::streamed}).files;
  } catch (const base::Error&) {
    if (must_exist) throw;
    const std::vector<std::string> names = recipe::split_paths(path);
    const std::string kind = names.empty() ? "" : kind_by_name(names.front());
    return kind.empty() ? plain_kind() : kind;
  }
  std::map<std::string, std::vector<std::string>> kinds;
  for (const std::string& file : files) {
    if (const std::string kind = kind_of(file, field); !kind.empty()) kinds[kind].push_back(file);
  }
  if (kinds.size() > 1) {
    refuse(
        fmt::format("data.path = {} contains files of several kinds, {}; set data.kind to the one you mean, "
                    "or select files with a pattern",
                    base::quoted(path, 200), counts_text(kinds)));
  }
  if (kinds.empty()) return plain_kind();
  const auto& [kind, of_it] = *kinds.begin();
  const bool here = !store::is_uri(of_it.front());
  const std::string claimed =
      here && find_kind(kind).files.tables ? kind_by_keys(first_keys(of_it.front()), field) : "";
  return claimed.empty() ? kind : claimed;
}

void resolve_kind(recipe::Resolved& resolved, bool must_exist) {
  auto& data = resolved.recipe.data;
  if (!data.mix.empty() || data.kind == kMix) check_mix(data);
  if (data.kind == "auto") {
    data.kind = data.mix.empty() ? infer_kind(data.path, must_exist, data.field) : kMix;
    resolved.origin["data.kind"] = "auto";
  } else {
    refuse_useless_path(resolved);
  }
  const bool spoken = data.kind == "chat" || data.kind == "preference";
  if (!spoken || data.tokenizer == conversation_tokenizer(resolved.recipe)) return;
  data.tokenizer = conversation_tokenizer(resolved.recipe);
  resolved.origin["data.tokenizer"] = "model.from";
}

}  // namespace lockstep::data
