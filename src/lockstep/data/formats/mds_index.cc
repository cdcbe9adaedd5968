// The index.json of an MDS folder.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/corpus/corpus.h"
#include "lockstep/data/formats/mds.h"
#include "lockstep/data/formats/unpack.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uintmax_t kLargestIndex = uintmax_t{64} << 20;

[[noreturn]] void refuse(const std::string& index, const std::string& why) {
  throw base::DataError(279, fmt::format("{} {}", index, why));
}

json read_index(const std::string& index) {
  std::error_code error;
  if (fs::file_size(index, error) > kLargestIndex || error)
    refuse(index, "is larger than 64 MiB: no MDS index");
  const base::ReadResult read = base::try_read_file(index);
  json all = json::parse(read.text, nullptr, false);
  if (!all.is_object() || !all.contains("shards") || !all["shards"].is_array())
    refuse(index, "is not the index of an MDS folder: it has no list of shards");
  return all;
}

// A file in the same folder or below it, as merge_index() lists the folders of several writers: nowhere else.
std::string beside(const std::string& index, const json& info) {
  const std::string name = info.is_object() ? info.value("basename", "") : "";
  const fs::path path(name);
  const bool below = !name.empty() && path.is_relative() && path.has_filename() &&
                     std::none_of(path.begin(), path.end(),
                                  [](const fs::path& part) { return part == "." || part == ".."; });
  if (!below)
    refuse(index, fmt::format("names a shard file {}, which is no name of a file beside it",
                              base::quoted(name, 80)));
  return (fs::path(index).parent_path() / path).string();
}

// "ndarray", "ndarray:int32", "ndarray:int32:2048".
bool read_array(const std::string& encoding, MdsArray& array) {
  struct Type {
    std::string_view name;
    int width;
    bool is_signed;
  };
  static constexpr Type kTypes[] = {{"uint8", 1, false},  {"int8", 1, true},    {"uint16", 2, false},
                                    {"int16", 2, true},   {"uint32", 4, false}, {"int32", 4, true},
                                    {"uint64", 8, false}, {"int64", 8, true}};
  if (encoding == "ndarray") return true;
  const std::string_view rest = std::string_view(encoding).substr(std::min(encoding.size(), size_t{8}));
  const std::string_view type = rest.substr(0, rest.find(':'));
  array.fixed_shape = type.size() < rest.size();
  for (const Type& row : kTypes) {
    if (row.name != type) continue;
    array.width = row.width;
    array.is_signed = row.is_signed;
    return true;
  }
  return false;
}

void choose_column(const std::string& index, const json& entry, const std::string& field, MdsShard& shard) {
  const std::vector<std::string> names = entry.at("column_names").get<std::vector<std::string>>();
  const std::vector<std::string> encodings = entry.at("column_encodings").get<std::vector<std::string>>();
  for (const json& size : entry.at("column_sizes")) {
    // As its own reader has it: no size, and a size of 0, mean that each sample says it.
    const int64_t bytes = size.is_null() ? 0 : size.get<int64_t>();
    if (bytes < 0 || bytes > INT32_MAX) refuse(index, fmt::format("promises a column of {} bytes", bytes));
    shard.sizes.push_back(bytes == 0 ? -1 : bytes);
  }
  if (encodings.size() != names.size() || shard.sizes.size() != names.size())
    refuse(index, "has shards with columns that lack a name, an encoding or a size");
  const auto found = std::find(names.begin(), names.end(), field);
  if (found == names.end()) refuse_column(index, field, names);
  shard.column = static_cast<size_t>(found - names.begin());
  const std::string& encoding = encodings[shard.column];
  shard.tokens = encoding.starts_with("ndarray");
  if (encoding == "str" || (shard.tokens && read_array(encoding, shard.array))) return;
  throw base::DataError(
      213, fmt::format("{} has a column {} of type {}, and only text (str) and arrays of integers "
                       "(ndarray:int32) are read; name another one with data.field or --field",
                       index, base::quoted(field, 60), base::quoted(encoding, 60)));
}

MdsShard shard_of(const std::string& index, const json& entry, const std::string& field) {
  MdsShard shard;
  if (entry.value("format", "") != "mds" || entry.value("version", 0) != 2)
    refuse(index, "has shards that are not of MDS version 2");
  const json zip = entry.value("zip_data", json()), raw = entry.value("raw_data", json());
  const std::string raw_file = beside(index, raw);
  std::error_code ignored;
  // Who has read the folder with its own library finds the unpacked shards there too.
  shard.packed = zip.is_object() && !fs::exists(raw_file, ignored);
  shard.file = shard.packed ? beside(index, zip) : raw_file;
  shard.raw_bytes = raw.value("bytes", int64_t{-1});
  shard.samples = entry.value("samples", int64_t{-1});
  if (shard.raw_bytes < 0 || shard.samples < 0)
    refuse(index, "has shards without a number of bytes or samples");
  const std::string compression =
      entry.value("compression", json()).is_string() ? entry["compression"].get<std::string>() : "";
  const std::string method = compression.substr(0, compression.find(':'));
  if (shard.packed && method != "zstd" && method != "gz") {
    throw base::DataError(236, fmt::format("{} has shards compressed with {}, and only zstd and gz are read: "
                                           "write it again with one of them, or without",
                                           index, base::quoted(compression, 40)));
  }
  choose_column(index, entry, field, shard);
  return shard;
}

}  // namespace

bool is_mds_index(const std::string& file) {
  if (!file.ends_with("index.json")) return false;
  const std::string begin = first_bytes_of(file, 4096);
  return base::trimmed(begin).starts_with('{') && begin.find("\"shards\"") != std::string::npos &&
         begin.find("\"mds\"") != std::string::npos;
}

int64_t mds_bytes(const std::string& index) {
  int64_t bytes = 0;
  const json all = read_index(index);
  for (const json& entry : all["shards"]) {
    const json zip = entry.value("zip_data", json()), raw = entry.value("raw_data", json());
    std::error_code missing;
    auto size = fs::file_size(beside(index, raw), missing);
    if (missing && zip.is_object()) size = fs::file_size(beside(index, zip), missing);
    if (!missing) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

std::vector<MdsShard> read_mds_index(const std::string& index, const std::string& field) {
  const json all = read_index(index);
  std::vector<MdsShard> shards;
  try {
    for (const json& entry : all["shards"]) shards.push_back(shard_of(index, entry, field));
  } catch (const json::exception& error) {
    refuse(index,
           fmt::format("is not the index of an MDS folder: {}", std::string(error.what()).substr(0, 120)));
  }
  for (const MdsShard& shard : shards) {
    if (shard.tokens != shards.front().tokens)
      refuse(index, fmt::format("has shards with text and shards with tokens in the column \"{}\"", field));
  }
  return shards;
}

}  // namespace lockstep::data
