#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/formats/pytorch.h"
#include "lockstep/checkpoint/formats/safe_path.h"
#include "lockstep/checkpoint/formats/shards.h"
#include "lockstep/checkpoint/formats/strict_json.h"
#include "lockstep/checkpoint/formats/widen.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kConfigName = "config.json";
constexpr int64_t kMostConfigBytes = int64_t{4} << 20;  // lists of labels are the longest
constexpr int kDeepestConfig = 64;

// Whether the name is there at all, be it a link to nowhere.
bool stands(const std::string& folder, const char* name) {
  std::error_code error;
  return fs::symlink_status(fs::path(folder) / name, error).type() != fs::file_type::not_found;
}

[[noreturn]] void refuse_folder(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw CheckpointError(
        306, fmt::format("{} is not a folder; expected a checkpoint or a Hugging Face model", folder));
  }
  throw CheckpointError(
      306, fmt::format("{} contains no {}, {}, {} or {}; expected a checkpoint or a Hugging Face model",
                       folder, kManifestName, kSingleName, kIndexName, kPytorchName));
}

// As it is: whoever needs a part of it says what is wrong with that.
std::string read_config(const std::string& folder) {
  const std::string path = file_inside(folder, kConfigName, folder);
  std::string text = read_small_file(path, kMostConfigBytes);
  if (nested_deeper(text, kDeepestConfig)) {
    throw CheckpointError(310, fmt::format("{} is nested deeper than {} levels, more than any real model "
                                           "needs; do not use files from a source you do not trust",
                                           path, kDeepestConfig));
  }
  return text;
}

// The part of a name that transformers puts before a model that stands in a larger one, and leaves out when
// the inner model is saved alone.
constexpr const char* kPrefixes[] = {"transformer.", "model."};

}  // namespace

struct Opened::State {
  struct Place {
    const TensorFile* file;
    const TensorFile::Entry* entry;
  };

  std::string folder;
  std::optional<Manifest> manifest;
  std::string config_json;
  std::map<std::string, std::unique_ptr<TensorFile>> files;  // by file name
  std::map<std::string, Place> tensors;

  const TensorFile& open(const std::string& name, const std::string& named_by,
                         const std::optional<FileSummary>& expected = {}) {
    auto& file = files[name];
    if (!file) file = std::make_unique<SafetensorsFile>(file_inside(folder, name, named_by), expected);
    return *file;
  }
  const TensorFile& open_pytorch(const std::string& name, const std::string& named_by) {
    auto& file = files[name];
    if (!file) file = std::make_unique<PytorchFile>(file_inside(folder, name, named_by));
    return *file;
  }

  void add_all_of(const TensorFile& file) {
    for (const auto& [name, entry] : file.entries()) {
      const auto [at, added] = tensors.emplace(name, Place{&file, &entry});
      if (!added) {
        throw CheckpointError(
            309, fmt::format("tensor {} is in both {} and {}; save or export the checkpoint again",
                             base::quoted(name), at->second.file->path(), file.path()));
      }
    }
  }

  void open_checkpoint() {
    manifest = read_manifest(folder);
    for (const FileSummary& file : manifest->files) {
      if (file.name.ends_with(".safetensors")) {
        add_all_of(open(file.name, kManifestName, file));
      } else {
        CheckedFile(file_inside(folder, file.name, kManifestName), file.sums, file.bytes).check_all();
      }
    }
  }

  void open_indexed(const char* index_name, bool pytorch) {
    const std::string index = file_inside(folder, index_name, folder);
    for (const auto& [name, file_name] : read_index(index)) {
      const TensorFile& file = pytorch ? open_pytorch(file_name, index) : open(file_name, index);
      const auto entry = file.entries().find(name);
      if (entry == file.entries().end()) {
        throw CheckpointError(303, fmt::format("{} says that tensor {} is in {}, but that file does not "
                                               "contain it; download or export the folder again",
                                               index, base::quoted(name), file_name));
      }
      tensors.emplace(name, Place{&file, &entry->second});
    }
  }

  std::map<std::string, Place>::const_iterator look_up(const std::string& name) const {
    auto found = tensors.find(name);
    for (const std::string prefix : kPrefixes) {
      if (found == tensors.end() && !manifest && name.starts_with(prefix))
        found = tensors.find(name.substr(prefix.size()));
    }
    return found;
  }

  const Place& find(const std::string& name) const {
    const auto found = look_up(name);
    if (found == tensors.end()) {
      throw CheckpointError(
          307,
          fmt::format(
              "{} has no tensor {} among its {}; this is a different model: check model.family and the sizes",
              folder, base::quoted(name), tensors.size()));
    }
    return found->second;
  }

  const Place& find_as(const Whole& tensor) const;
};

// The tensor, if it can be read as this one.
const Opened::State::Place& Opened::State::find_as(const Whole& tensor) const {
  const Place& place = find(tensor.name);
  const TensorFile::Entry& entry = *place.entry;
  const auto refuse = [&](int number, const std::string& why) {
    throw CheckpointError(
        number, fmt::format("{}: tensor {} {}", place.file->path(), base::quoted(tensor.name), why));
  };
  bool same_shape = tensor.shape.rank() == static_cast<int>(entry.shape.size());
  for (int i = 0; same_shape && i < tensor.shape.rank(); ++i)
    same_shape = tensor.shape[i] == entry.shape[static_cast<size_t>(i)];
  if (!same_shape) {
    refuse(307, fmt::format("has shape {}, but the model needs {}; check the model sizes in the recipe",
                            shape_text(entry.shape), tensor.shape.to_string()));
  }
  if (entry.dtype == tensor.dtype) return place;
  if (tensor.dtype != device::DType::f32) {
    refuse(307, fmt::format("is stored as {}, but the model keeps it as {}; this is a different model",
                            device::name_of(entry.dtype), device::name_of(tensor.dtype)));
  }
  if (!can_widen(entry.dtype)) {
    refuse(307, fmt::format("is stored as {}, but weights must be fp32, bf16 or fp16; convert it",
                            device::name_of(entry.dtype)));
  }
  // Chunks end at multiples of a MiB: an element that lies across would be converted in halves.
  if (place.file->file().checked() && entry.begin % device::size_of(entry.dtype) != 0)
    refuse(302, "is not aligned to its element size; save or export the checkpoint again");
  return place;
}

Opened::Opened(const std::string& folder) : state_(std::make_unique<State>()) {
  state_->folder = folder;
  if (stands(folder, kManifestName)) {
    state_->open_checkpoint();
  } else if (stands(folder, kSingleName)) {  // before the index, as transformers does
    state_->add_all_of(state_->open(kSingleName, folder));
  } else if (stands(folder, kIndexName)) {
    state_->open_indexed(kIndexName, false);
  } else if (stands(folder, kPytorchName)) {
    state_->add_all_of(state_->open_pytorch(kPytorchName, folder));
  } else if (stands(folder, kPytorchIndexName)) {
    state_->open_indexed(kPytorchIndexName, true);
  } else {
    refuse_folder(folder);
  }
  if (stands(folder, kConfigName)) state_->config_json = read_config(folder);
}

Opened::~Opened() = default;

const std::string& Opened::folder() const { return state_->folder; }
const std::optional<Manifest>& Opened::manifest() const { return state_->manifest; }
const std::string& Opened::config_json() const { return state_->config_json; }
bool Opened::has(const std::string& name) const { return state_->look_up(name) != state_->tensors.end(); }

std::vector<std::string> Opened::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : state_->tensors) names.push_back(name);
  return names;
}

Whole Opened::find(const std::string& name) const {
  const auto& [file, entry] = state_->find(name);
  if (entry->shape.size() > 4) {
    throw CheckpointError(307, fmt::format("{}: tensor {} has {} dimensions; at most 4 are supported",
                                           file->path(), base::quoted(name), entry->shape.size()));
  }
  const bool moment = fs::path(file->path()).filename().string().starts_with("optimizer-");
  return {.name = name,
          .dtype = entry->dtype,
          .shape = shape_of(entry->shape),
          .kind = moment ? Kind::moment : Kind::weight};
}

std::vector<const TensorFile*> Opened::files() const {
  std::vector<const TensorFile*> files;
  for (const auto& [name, file] : state_->files) files.push_back(file.get());
  return files;
}

void Opened::read(const std::vector<Wanted>& wanted, HashSums* hashes) const {
  const auto hash = [&](const Wanted& one, const Run& run) {
    const auto* values = static_cast<const float*>(one.to) + run.from;
    hashes->add(one.piece.tensor.order, run.at, {values, static_cast<size_t>(run.count)});
  };
  std::vector<std::pair<const Wanted*, Run>> later;  // whose elements lie across the ends of chunks
  std::map<const TensorFile*, std::vector<Wish>> wishes;
  for (const Wanted& one : wanted) {
    const auto& [file, entry] = state_->find_as(one.piece.tensor);
    const int64_t stored = device::size_of(entry->dtype), size = device::size_of(one.piece.tensor.dtype);
    for (const Run& run : runs_of(one.piece)) {
      if (!entry->strides.empty()) {
        const std::vector<std::byte> values = file->gather(*entry, run.at, run.count, &one.piece.tensor.name);
        std::byte* to = static_cast<std::byte*>(one.to) + run.from * size;
        if (entry->dtype == one.piece.tensor.dtype) {
          std::memcpy(to, values.data(), values.size());
        } else {
          widen(values.data(), entry->dtype, run.count, reinterpret_cast<float*>(to));
        }
        if (one.hashed && hashes != nullptr) later.emplace_back(&one, run);
        continue;
      }
      Wish wish{.at = entry->begin + run.at * stored,
                .bytes = run.count * stored,
                .to = static_cast<std::byte*>(one.to) + run.from * size,
                .widen = {},
                .tensor = &one.piece.tensor.name};
      if (entry->dtype != one.piece.tensor.dtype) wish.widen = entry->dtype;
      if (one.hashed && hashes != nullptr) {
        if (entry->begin % stored == 0) {
          wish.hashed_as = one.piece.tensor.order, wish.first_element = run.at;
        } else {
          later.emplace_back(&one, run);
        }
      }
      wishes[file].push_back(wish);
    }
  }
  for (auto& [file, list] : wishes) file->file().read(std::move(list), hashes);
  for (const auto& [one, run] : later) hash(*one, run);
}

bool Opened::same(const std::string& one, const std::string& other) const {
  constexpr int64_t kElements = int64_t{1} << 20;  // at a time
  Whole a = find(one), b = find(other);
  if (!(a.shape == b.shape)) return false;
  a.dtype = b.dtype = device::DType::f32;
  const Piece first = whole_piece(a), second = whole_piece(b);
  std::vector<float> values(static_cast<size_t>(std::min(first.count, kElements))), others(values.size());
  for (int64_t at = 0; at < first.count; at += kElements) {
    const int64_t count = std::min(kElements, first.count - at);
    read({{part_of(first, at, count), values.data()}, {part_of(second, at, count), others.data()}});
    if (std::memcmp(values.data(), others.data(), static_cast<size_t>(count) * sizeof(float)) != 0)
      return false;
  }
  return true;
}

void Opened::check_all() const {
  for (const auto& [name, file] : state_->files) file->file().check_all();
}

}  // namespace lockstep::checkpoint
