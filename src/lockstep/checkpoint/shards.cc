#include "lockstep/checkpoint/shards.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file_writer.h"
#include "lockstep/checkpoint/strict_json.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kMostIndexBytes = int64_t{100} << 20;

}  // namespace

std::vector<Shard> plan_shards(const std::string& prefix, const std::vector<HostTensor>& tensors,
                               int64_t most_bytes) {
  std::vector<Shard> shards(1);
  int64_t bytes = 0;  // of the last shard
  for (const HostTensor& one : tensors) {
    if (!shards.back().tensors.empty() && bytes + one.tensor.bytes() > most_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().tensors.push_back(one);
    bytes += one.tensor.bytes();
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file_name = fmt::format("{}-{:05d}-of-{:05d}.safetensors", prefix, i + 1, shards.size());
  }
  return shards;
}

std::vector<FileSummary> write_shards(const std::string& folder, const std::vector<Shard>& shards) {
  std::vector<FileSummary> files;
  for (const Shard& shard : shards) {
    files.push_back(write_safetensors(folder + "/" + shard.file_name, shard.tensors, {{"format", "pt"}}));
  }
  return files;
}

FileSummary write_index(const std::string& folder, const std::vector<Shard>& shards) {
  int64_t bytes = 0;
  nlohmann::json weight_map = nlohmann::json::object();
  for (const Shard& shard : shards) {
    for (const HostTensor& one : shard.tensors) {
      weight_map[one.name] = shard.file_name;
      bytes += one.tensor.bytes();
    }
  }
  const nlohmann::json index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", weight_map}};
  return write_text(folder + "/" + kIndexName, index.dump(2) + "\n");
}

std::map<std::string, std::string> read_index(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw base::DataError(303,
                          fmt::format("{} is not a usable index: {}; fetch or export it again", path, why));
  };
  const nlohmann::json json = parse_strict(base::read_file(path, kMostIndexBytes), 303, path);
  if (!json.is_object() || !json.contains("weight_map")) refuse("\"weight_map\" is missing");
  const nlohmann::json& weight_map = json["weight_map"];
  if (!weight_map.is_object() || weight_map.empty()) refuse("\"weight_map\" names no tensors");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : weight_map.items()) {
    if (!file.is_string()) refuse(fmt::format("tensor {} has no file name", base::quoted(tensor)));
    files[tensor] = file.get<std::string>();
  }
  return files;
}

}  // namespace lockstep::checkpoint
