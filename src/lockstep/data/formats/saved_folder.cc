#include "lockstep/data/formats/saved_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/formats/mds.h"
#include "lockstep/data/formats/megatron.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uintmax_t kLargestJson = uintmax_t{64} << 20;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

[[noreturn]] void refuse(const fs::path& file, const std::string& why) {
  throw base::DataError(282,
                        fmt::format("{} {}; save the dataset again with save_to_disk", file.string(), why));
}

json read_object(const fs::path& file) {
  std::error_code error;
  if (fs::file_size(file, error) > kLargestJson || error) refuse(file, "is larger than 64 MiB");
  json read = json::parse(base::try_read_file(file.string()).text, nullptr, false);
  if (!read.is_object()) refuse(file, "is not a JSON object");
  return read;
}

// A name in that folder, and nowhere else.
std::string plain_name(const fs::path& file, const json& value) {
  const std::string name = value.is_string() ? value.get<std::string>() : "";
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos)
    refuse(file, fmt::format("names {}, which is no file or folder beside it", base::quoted(name, 80)));
  return name;
}

std::vector<std::string> listed_files(const fs::path& state) {
  const json read = read_object(state);
  const json indices = read.value("_indices_data_files", json());
  if (indices.is_array() && !indices.empty())
    refuse(state, "describes a selection of rows, which is not read: call flatten_indices() first");
  std::vector<std::string> files;
  for (const json& entry : read.at("_data_files")) {
    const std::string name = plain_name(state, entry.is_object() ? entry.value("filename", json()) : json());
    const fs::path file = state.parent_path() / name;
    if (!is_file(file)) refuse(state, fmt::format("lists {}, which is not there", base::quoted(name, 80)));
    files.push_back(file.string());
  }
  return files;
}

std::string train_split(const fs::path& dict) {
  const json read = read_object(dict);
  std::vector<std::string> splits;
  for (const json& split : read.value("splits", json::array())) splits.push_back(plain_name(dict, split));
  if (splits.size() == 1) return splits.front();
  if (std::find(splits.begin(), splits.end(), "train") != splits.end()) return "train";
  throw base::DataError(
      282, fmt::format("{} has the splits {} and none named train; name one of these folders", dict.string(),
                       base::cut_to_width(base::join(splits, ", "), 200)));
}

}  // namespace

std::optional<std::vector<std::string>> files_of_saved(const std::string& folder) {
  const fs::path path(folder);
  if (is_file(path / "dataset_dict.json"))
    return files_of_saved((path / train_split(path / "dataset_dict.json")).string());
  if (is_file(path / "state.json") && is_file(path / "dataset_info.json")) {
    const json read = read_object(path / "state.json");
    if (read.contains("_data_files") && read["_data_files"].is_array())
      return listed_files(path / "state.json");
  }
  if (is_file(path / "index.json") && is_mds_index((path / "index.json").string()))
    return std::vector{(path / "index.json").string()};
  return std::nullopt;
}

bool belongs_to_another(const std::string& file) {
  return file.ends_with(".idx") && is_file(file.substr(0, file.size() - 4) + ".bin");
}

std::optional<std::string> megatron_file(const std::string& path) {
  if (belongs_to_another(path)) return path.substr(0, path.size() - 4) + ".bin";
  const std::string bin = path + ".bin";
  if (!is_file(path) && is_file(bin) && !megatron_index_of(bin).empty()) return bin;
  return std::nullopt;
}

}  // namespace lockstep::data
