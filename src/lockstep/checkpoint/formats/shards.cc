#include "lockstep/checkpoint/formats/shards.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/adapter.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/formats/strict_json.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kMostIndexBytes = int64_t{100} << 20;

void lay_out(PlannedFile& file, const std::vector<Whole>& as_named) {
  file.header = safetensors_header(as_named, {{"format", "pt"}});
  file.bytes = static_cast<int64_t>(file.header.size());
  for (const Whole& one : file.tensors) {
    file.begins.push_back(file.bytes);
    file.bytes += one.bytes();
  }
}

std::vector<PlannedFile> fill_files(const std::string& prefix, const std::vector<Whole>& tensors,
                                    bool moments, int64_t most_bytes) {
  std::vector<PlannedFile> files(1);
  int64_t bytes = 0;  // of the last file
  for (const Whole& one : tensors) {
    if ((one.kind == Kind::moment) != moments) continue;
    if (!files.back().tensors.empty() && bytes + one.bytes() > most_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().tensors.push_back(one);
    bytes += one.bytes();
  }
  for (size_t i = 0; i < files.size(); ++i) {
    PlannedFile& file = files[i];
    file.name = fmt::format("{}-{:05d}-of-{:05d}.safetensors", prefix, i + 1, files.size());
    lay_out(file, file.tensors);
  }
  return files;
}

}  // namespace

std::vector<PlannedFile> plan_files(const std::vector<Whole>& tensors, int64_t most_bytes) {
  std::vector<PlannedFile> files = fill_files("model", tensors, false, most_bytes);
  for (PlannedFile& file : fill_files("optimizer", tensors, true, most_bytes)) {
    if (!file.tensors.empty()) files.push_back(std::move(file));
  }
  return files;
}

std::vector<PlannedFile> plan_adapter_files(const std::vector<Whole>& tensors, int64_t most_bytes) {
  std::vector<PlannedFile> files(1);
  std::vector<Whole> named;
  for (const Whole& one : tensors) {
    if (one.kind == Kind::moment) continue;
    files[0].tensors.push_back(one);
    named.push_back(one);
    named.back().name = peft_name(one.name);
  }
  files[0].name = kAdapterName;
  lay_out(files[0], named);
  for (PlannedFile& file : fill_files("optimizer", tensors, true, most_bytes)) {
    if (!file.tensors.empty()) files.push_back(std::move(file));
  }
  return files;
}

std::string index_text(const std::vector<PlannedFile>& files) {
  int64_t bytes = 0;
  nlohmann::json weight_map = nlohmann::json::object();
  for (const PlannedFile& file : files) {
    for (const Whole& one : file.tensors) {
      if (one.kind == Kind::moment) continue;
      weight_map[one.name] = file.name;
      bytes += one.bytes();
    }
  }
  return nlohmann::json{{"metadata", {{"total_size", bytes}}}, {"weight_map", weight_map}}.dump(2) + "\n";
}

std::map<std::string, std::string> read_index(const std::string& path) {
  return parse_index(base::read_file(path, kMostIndexBytes), path);
}

std::map<std::string, std::string> parse_index(const std::string& text, const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw CheckpointError(303,
                          fmt::format("{} is not a valid index: {}; download or export it again", path, why));
  };
  const nlohmann::json json = parse_strict(text, 303, path);
  if (!json.is_object() || !json.contains("weight_map")) refuse("\"weight_map\" is missing");
  const nlohmann::json& weight_map = json["weight_map"];
  if (!weight_map.is_object() || weight_map.empty()) refuse("\"weight_map\" lists no tensors");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : weight_map.items()) {
    if (!file.is_string()) refuse(fmt::format("tensor {} has no file name", base::quoted(tensor)));
    files[tensor] = file.get<std::string>();
  }
  return files;
}

}  // namespace lockstep::checkpoint
