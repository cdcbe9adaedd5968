#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checksum.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/safe_path.h"
#include "lockstep/checkpoint/shards.h"
#include "lockstep/checkpoint/widen.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kConfigName = "config.json";
constexpr int64_t kMostConfigBytes = int64_t{64} << 20;

// Whether the name is there at all, be it a link to nowhere.
bool stands(const std::string& folder, const char* name) {
  std::error_code error;
  return fs::symlink_status(fs::path(folder) / name, error).type() != fs::file_type::not_found;
}

[[noreturn]] void refuse_folder(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw base::DataError(
        306, fmt::format("{} is not a folder; name the folder of a checkpoint or of a Hugging Face "
                         "model",
                         folder));
  }
  const bool pickled = stands(folder, "pytorch_model.bin") || stands(folder, "pytorch_model.bin.index.json");
  throw base::DataError(
      306,
      fmt::format("{} holds no {}, {} or {}; {}", folder, kManifestName, kSingleName, kIndexName,
                  pickled
                      ? "its pytorch_model.bin is not read: save the model again with safe_serialization=True"
                      : "name the folder of a checkpoint or of a Hugging Face model"));
}

// Sizes always, contents when asked to: that reads every byte.
void check_file(const std::string& path, const FileSummary& expected, bool contents) {
  const base::MappedFile file = base::MappedFile::open(path);
  std::string why;
  if (file.size() != expected.bytes) {
    why = fmt::format("it has {} bytes, the manifest says {}", file.size(), expected.bytes);
  } else if (contents && checksum_of(file.bytes()) != expected.checksum) {
    why = "its checksum is not the manifest's";
  } else {
    return;
  }
  throw base::DataError(
      305,
      fmt::format("{} is damaged: {}; use another checkpoint of the run, or copy this one again", path, why));
}

}  // namespace

struct Opened::State {
  struct Place {
    const SafetensorsFile* file;
    const SafetensorsFile::Entry* entry;
  };

  std::string folder;
  std::optional<Manifest> manifest;
  std::string config_json;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files;  // by file name
  std::map<std::string, Place> tensors;

  const SafetensorsFile& open(const std::string& name, const std::string& named_by) {
    auto& file = files[name];
    if (!file) file = std::make_unique<SafetensorsFile>(file_inside(folder, name, named_by));
    return *file;
  }

  void add_all_of(const SafetensorsFile& file) {
    for (const auto& [name, entry] : file.entries()) {
      const auto [at, added] = tensors.emplace(name, Place{&file, &entry});
      if (!added) {
        throw base::DataError(
            309, fmt::format("tensor {} is both in {} and in {}; save or export the checkpoint again",
                             base::quoted(name), at->second.file->path(), file.path()));
      }
    }
  }

  void open_checkpoint(bool verify) {
    manifest = read_manifest(folder);
    for (const FileSummary& file : manifest->files)
      check_file(file_inside(folder, file.name, kManifestName), file, verify);
    for (const FileSummary& file : manifest->files) {
      if (file.name.ends_with(".safetensors")) add_all_of(open(file.name, kManifestName));
    }
  }

  void open_indexed() {
    const std::string index = file_inside(folder, kIndexName, folder);
    for (const auto& [name, file_name] : read_index(index)) {
      const SafetensorsFile& file = open(file_name, index);
      const auto entry = file.entries().find(name);
      if (entry == file.entries().end()) {
        throw base::DataError(
            303, fmt::format("{} says that tensor {} is in {}, which has no such tensor; fetch or "
                             "export the folder again",
                             index, base::quoted(name), file_name));
      }
      tensors.emplace(name, Place{&file, &entry->second});
    }
  }

  const Place& find(const std::string& name) const {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      throw base::DataError(307,
                            fmt::format("{} has no tensor {} among its {}; it is of another model: check "
                                        "model.family and the sizes",
                                        folder, base::quoted(name), tensors.size()));
    }
    return found->second;
  }
};

Opened::Opened(const std::string& folder, bool verify) : state_(std::make_unique<State>()) {
  state_->folder = folder;
  if (stands(folder, kManifestName)) {
    state_->open_checkpoint(verify);
  } else if (stands(folder, kSingleName)) {  // before the index, as transformers does
    state_->add_all_of(state_->open(kSingleName, folder));
  } else if (stands(folder, kIndexName)) {
    state_->open_indexed();
  } else {
    refuse_folder(folder);
  }
  if (stands(folder, kConfigName)) {
    state_->config_json = base::read_file(file_inside(folder, kConfigName, folder), kMostConfigBytes);
  }
}

Opened::~Opened() = default;

const std::optional<Manifest>& Opened::manifest() const { return state_->manifest; }
std::string Opened::config_json() const { return state_->config_json; }
bool Opened::has(const std::string& name) const { return state_->tensors.contains(name); }

std::vector<std::string> Opened::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : state_->tensors) names.push_back(name);
  return names;
}

void Opened::read(const std::string& name, const device::Tensor& to) const {
  const auto& [file, entry] = state_->find(name);
  bool same_shape = to.shape.rank() == static_cast<int>(entry->shape.size());
  for (int i = 0; same_shape && i < to.shape.rank(); ++i)
    same_shape = to.shape[i] == entry->shape[static_cast<size_t>(i)];
  if (!same_shape) {
    throw base::DataError(
        307,
        fmt::format("{}: tensor {} has shape [{}], the model needs {}; check the recipe's model "
                    "sizes",
                    file->path(), base::quoted(name), fmt::join(entry->shape, ", "), to.shape.to_string()));
  }
  if (to.dtype != device::DType::f32) {
    if (entry->dtype != to.dtype) {
      throw base::DataError(
          307, fmt::format("{}: tensor {} is stored as {}, the model keeps it as {}; it is of another model",
                           file->path(), base::quoted(name), device::name_of(entry->dtype),
                           device::name_of(to.dtype)));
    }
    std::memcpy(to.data, file->data(*entry), static_cast<size_t>(to.bytes()));
    return;
  }
  if (!can_widen(entry->dtype)) {
    throw base::DataError(
        307, fmt::format("{}: tensor {} is stored as {}; weights are read from fp32, bf16 or fp16: "
                         "convert it",
                         file->path(), base::quoted(name), device::name_of(entry->dtype)));
  }
  widen(file->data(*entry), entry->dtype, to.numel(), to.as<float>());
}

}  // namespace lockstep::checkpoint
