#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/formats/pytorch.h"
#include "lockstep/checkpoint/formats/safe_path.h"
#include "lockstep/checkpoint/formats/shards.h"
#include "lockstep/checkpoint/formats/strict_json.h"
#include "lockstep/checkpoint/formats/widen.h"
#include "lockstep/checkpoint/opened_state.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleName = "model.safetensors";

[[noreturn]] void refuse_folder(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw CheckpointError(
        306, fmt::format("{} is not a folder; expected a checkpoint or a Hugging Face model", folder));
  }
  throw CheckpointError(
      306,
      fmt::format("{} contains no {}, {}, {}, {} or {}; expected a checkpoint, a Hugging Face model or an "
                  "adapter",
                  folder, kManifestName, kSingleName, kIndexName, kPytorchName, kAdapterName));
}

constexpr int64_t kMostConfigBytes = int64_t{4} << 20;  // lists of labels are the longest
constexpr int kDeepestConfig = 64;

// The part of a name that transformers puts before a model that stands in a larger one, and leaves out when
// the inner model is saved alone.
constexpr const char* kPrefixes[] = {"transformer.", "model."};

}  // namespace

bool stands(const std::string& folder, const char* name) {
  std::error_code error;
  return fs::symlink_status(fs::path(folder) / name, error).type() != fs::file_type::not_found;
}

std::string read_config(const std::string& folder, const char* name) {
  const std::string path = file_inside(folder, name, folder);
  std::string text = read_small_file(path, kMostConfigBytes);
  if (nested_deeper(text, kDeepestConfig)) {
    throw CheckpointError(310, fmt::format("{} is nested deeper than {} levels, more than any real model "
                                           "needs; do not use files from a source you do not trust",
                                           path, kDeepestConfig));
  }
  return text;
}

const TensorFile& Opened::State::open(const std::string& name, const std::string& named_by,
                                      const std::optional<FileSummary>& expected) {
  auto& file = files[name];
  if (!file) file = std::make_unique<SafetensorsFile>(file_inside(folder, name, named_by), expected);
  return *file;
}

const TensorFile& Opened::State::open_pytorch(const std::string& name, const std::string& named_by) {
  auto& file = files[name];
  if (!file) file = std::make_unique<PytorchFile>(file_inside(folder, name, named_by));
  return *file;
}

void Opened::State::add_all_of(const TensorFile& file) {
  const bool peft = fs::path(file.path()).filename().string().starts_with("adapter_model.");
  for (const auto& [stored, entry] : file.entries()) {
    const std::string name = peft ? plain_name(stored) : stored;
    if (peft && name.find(".lora_embedding_") != std::string::npos) {
      throw CheckpointError(
          340, fmt::format(
                   "{}: it adapts an embedding ({}), which is not supported; train an adapter without it, or "
                   "merge it into the model with PEFT",
                   file.path(), base::quoted(name)));
    }
    const auto [at, added] = tensors.emplace(name, Place{&file, &entry});
    if (!added) {
      throw CheckpointError(309,
                            fmt::format("tensor {} is in both {} and {}; save or export the checkpoint again",
                                        base::quoted(name), at->second.file->path(), file.path()));
    }
  }
}

void Opened::State::open_checkpoint() {
  manifest = read_manifest(folder);
  for (const FileSummary& file : manifest->files) {
    if (file.name.ends_with(".safetensors")) {
      add_all_of(open(file.name, kManifestName, file));
    } else {
      CheckedFile(file_inside(folder, file.name, kManifestName), file.sums, file.bytes).check_all();
    }
  }
}

void Opened::State::open_indexed(const char* index_name, bool pytorch) {
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

std::map<std::string, Opened::State::Place>::const_iterator Opened::State::look_up(
    const std::string& name) const {
  auto found = tensors.find(name);
  for (const std::string prefix : kPrefixes) {
    if (found == tensors.end() && !manifest && name.starts_with(prefix))
      found = tensors.find(name.substr(prefix.size()));
  }
  return found;
}

const Opened::State& Opened::State::holder_of(const std::string& name) const {
  return base && look_up(name) == tensors.end() ? base->state_->holder_of(name) : *this;
}

bool Opened::State::has(const std::string& name) const {
  return holder_of(name).look_up(name) != holder_of(name).tensors.end();
}

const Opened::State::Place& Opened::State::find(const std::string& name) const {
  if (const State& holder = holder_of(name); &holder != this) return holder.find(name);
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

Opened::Opened(const std::string& folder, Adapters adapters) : state_(std::make_unique<State>()) {
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
  } else if (stands(folder, kAdapterName)) {
    state_->add_all_of(state_->open(kAdapterName, folder));
  } else if (stands(folder, kAdapterPytorchName)) {
    state_->add_all_of(state_->open_pytorch(kAdapterPytorchName, folder));
  } else {
    refuse_folder(folder);
  }
  if (stands(folder, kConfigName)) state_->config_json = read_config(folder, kConfigName);
  state_->open_adapter(adapters);
  // The model's own says more than what a run knows of it.
  const bool takes_base = state_->config_json.empty() || adapters == Adapters::merged;
  if (takes_base && state_->base && !state_->base->config_json().empty())
    state_->config_json = state_->base->config_json();
}

Opened::~Opened() = default;

const std::string& Opened::folder() const { return state_->folder; }
const std::optional<Manifest>& Opened::manifest() const { return state_->manifest; }
const std::string& Opened::config_json() const { return state_->config_json; }
const std::optional<AdapterConfig>& Opened::adapter() const { return state_->adapter; }
bool Opened::has(const std::string& name) const { return state_->has(name); }
bool Opened::keeps_inputs_first() const { return state_->keeps_inputs_first(); }
bool Opened::merges(const std::string& name) const {
  return state_->merged.contains(name) || state_->rounded.contains(name) ||
         (state_->base && state_->base->merges(name));
}

std::vector<std::string> Opened::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : state_->tensors) {
    const bool hidden = !state_->merged.empty() && is_adapter_tensor(name);
    if (!hidden) names.push_back(name);
  }
  if (!state_->base) return names;
  for (const std::string& name : state_->base->names()) {
    if (!state_->tensors.contains(name)) names.push_back(name);
  }
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
  std::vector<Wanted> plain;
  for (const Wanted& one : wanted) {
    const auto merged = state_->merged.find(one.piece.tensor.name);
    if (merged != state_->merged.end()) {
      LS_ASSERT(!one.hashed || hashes == nullptr, "merged weights are not hashed");
      state_->read_merged(one, merged->second);
    } else if (state_->rounded.contains(one.piece.tensor.name)) {
      state_->read_rounded(one);
    } else if (&state_->holder_of(one.piece.tensor.name) != state_.get()) {
      state_->base->read({one}, hashes);
    } else {
      plain.push_back(one);
    }
  }
  if (!plain.empty()) state_->read(plain, hashes);
}

void Opened::State::read(const std::vector<Wanted>& wanted, HashSums* hashes) const {
  const auto hash = [&](const Wanted& one, const Run& run) {
    const auto* values = static_cast<const float*>(one.to) + run.from;
    hashes->add(one.piece.tensor.order, run.at, {values, static_cast<size_t>(run.count)});
  };
  std::vector<std::pair<const Wanted*, Run>> later;  // whose elements lie across the ends of chunks
  std::map<const TensorFile*, std::vector<ReadRequest>> requests;
  for (const Wanted& one : wanted) {
    const auto& [file, entry] = find_as(one.piece.tensor);
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
      ReadRequest request{.at = entry->begin + run.at * stored,
                          .bytes = run.count * stored,
                          .to = static_cast<std::byte*>(one.to) + run.from * size,
                          .widen = {},
                          .tensor = &one.piece.tensor.name};
      if (entry->dtype != one.piece.tensor.dtype) request.widen = entry->dtype;
      if (one.hashed && hashes != nullptr) {
        if (entry->begin % stored == 0) {
          request.hashed_as = one.piece.tensor.order, request.first_element = run.at;
        } else {
          later.emplace_back(&one, run);
        }
      }
      requests[file].push_back(request);
    }
  }
  for (auto& [file, list] : requests) file->file().read(std::move(list), hashes);
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

std::string Opened::fingerprint() const {
  constexpr int64_t kSome = 4096;
  uint64_t hash = 0;
  const auto add = [&](const std::string& text) { hash = base::hash_text(text, hash); };
  for (const auto& [name, place] : state_->tensors) {
    const auto& [file, entry] = place;
    if (fs::path(file->path()).filename().string().starts_with("optimizer-")) continue;
    add(fmt::format("{} {} {}", name, device::name_of(entry->dtype), shape_text(entry->shape)));
    for (const int64_t at : {entry->begin, entry->begin + (entry->end - entry->begin) / 2})
      add(file->file().text(at, std::min(kSome, entry->end - at)));
  }
  if (state_->base) add(state_->base->fingerprint());
  return base::hex64(hash);
}

void Opened::check_all() const {
  for (const auto& [name, file] : state_->files) file->file().check_all();
}

}  // namespace lockstep::checkpoint
