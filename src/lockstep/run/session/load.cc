#include "lockstep/run/session/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/formats/widen.h"
#include "lockstep/model/families/family.h"
#include "lockstep/model/families/huggingface.h"
#include "lockstep/model/modules/module_file.h"
#include "lockstep/run/session/adapter.h"

namespace lockstep::run {

namespace {

using checkpoint::Kind;
using checkpoint::Opened;
using Held = std::vector<Parameters::Saved>;

constexpr int64_t kStageBytes = int64_t{64} << 20;

// Pinned memory that files are read into while what was read before goes to the device.
class Stage {
 public:
  explicit Stage(device::Device& device) : device_(device), stream_(device.create_stream()) {
    memory_ = static_cast<std::byte*>(device.allocate_host(kStageBytes));
  }
  ~Stage() {
    device_.synchronize(stream_);
    device_.free_host(memory_);
    device_.destroy_stream(stream_);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Elements of a piece to where it is held; they fit.
  void add(const checkpoint::Piece& piece, void* to, const Opened& from) {
    if (used_ + piece.bytes() > kStageBytes) flush(from);
    wanted_.push_back({piece, memory_ + used_});
    to_.push_back(to);
    used_ += (piece.bytes() + 255) / 256 * 256;
  }
  void flush(const Opened& from) {
    device_.synchronize(stream_);
    from.read(wanted_);
    for (size_t k = 0; k < wanted_.size(); ++k) {
      device_.copy(to_[k], wanted_[k].to, wanted_[k].piece.bytes(), device::CopyKind::host_to_device,
                   stream_);
    }
    device_.synchronize(stream_);
    wanted_.clear();
    to_.clear();
    used_ = 0;
  }

 private:
  device::Device& device_;
  device::Stream stream_;
  std::byte* memory_ = nullptr;
  std::vector<Opened::Wanted> wanted_;
  std::vector<void*> to_;
  int64_t used_ = 0;
};

// Frozen weights that are kept in the type of products, or quantized: read in fp32, whatever the file has,
// and rounded.
bool is_rounded(const Parameters::Saved& one) {
  return one.format != kernels::Quantized::none ||
         (one.piece.tensor.kind == Kind::weight && one.piece.tensor.dtype != device::DType::f32);
}

void quantize_piece(const Opened& from, const Parameters::Saved& one, const std::vector<float>& wide,
                    std::vector<char>& blocks) {
  const auto count = static_cast<int64_t>(wide.size());
  blocks.resize(static_cast<size_t>(kernels::quantized_bytes(one.format, count)));
  if (kernels::quantize(one.format, wide.data(), count, blocks.data())) return;
  throw checkpoint::CheckpointError(
      348, fmt::format("{}: {} has a value that is infinite or not a number, which tune.base = \"{}\" cannot "
                       "hold; repair the model, or set tune.base=compute",
                       from.folder(), one.piece.tensor.name, kernels::name_of(one.format)));
}

void read_rounded(device::Device& device, const Opened& from, const Parameters::Saved& one,
                  checkpoint::HashSums* hashes) {
  constexpr int64_t kMost = kStageBytes / 4;
  const device::DType type = one.piece.tensor.dtype;
  std::vector<float> wide;
  std::vector<char> narrow;
  for (int64_t at = 0; at < one.piece.count; at += kMost) {
    checkpoint::Piece piece = checkpoint::part_of(one.piece, at, std::min(kMost, one.piece.count - at));
    piece.tensor.dtype = device::DType::f32;
    wide.resize(static_cast<size_t>(piece.count));
    from.read({{piece, wide.data(), one.copy == 0}}, hashes);
    int64_t to = at * device::size_of(type);
    if (one.format != kernels::Quantized::none) {
      quantize_piece(from, one, wide, narrow);
      to = kernels::quantized_bytes(one.format, at);
    } else {
      narrow.resize(static_cast<size_t>(piece.count * device::size_of(type)));
      checkpoint::narrow(wide.data(), piece.count, type, narrow.data());
    }
    device.copy(one.values.as<char>() + to, narrow.data(), static_cast<int64_t>(narrow.size()),
                device::CopyKind::host_to_device, nullptr);
    device.synchronize(nullptr);
  }
}

}  // namespace

// Into host memory straight from the file, hashed on the way; elsewhere through a stage, and the device
// hashes faster. Nothing larger than the stage is held.
void read_held(device::Device& device, const Opened& from, Held held, checkpoint::HashSums* hashes) {
  for (const Parameters::Saved& one : held) {
    if (is_rounded(one)) read_rounded(device, from, one, hashes);
  }
  std::erase_if(held, is_rounded);
  if (device.id().kind == device::Kind::cpu) {
    std::vector<Opened::Wanted> wanted;
    for (const Parameters::Saved& one : held) {
      const bool hashed = one.piece.tensor.kind == Kind::weight && one.copy == 0;
      wanted.push_back({one.piece, one.values.data, hashed});
    }
    from.read(wanted, hashes);
    return;
  }
  Stage stage(device);
  for (const Parameters::Saved& one : held) {
    const int64_t size = device::size_of(one.piece.tensor.dtype), most = kStageBytes / size;
    for (int64_t at = 0; at < one.piece.count; at += most) {
      const int64_t count = std::min(most, one.piece.count - at);
      stage.add(checkpoint::part_of(one.piece, at, count), one.values.as<char>() + at * size, from);
    }
  }
  stage.flush(from);
}

namespace {

// An adapter goes on beside the values that it was trained beside.
void check_format(const checkpoint::Base& base, const Held& held, const std::string& folder) {
  kernels::Quantized here = kernels::Quantized::none;
  for (const Parameters::Saved& one : held) {
    if (one.format != kernels::Quantized::none) here = one.format;
  }
  const bool holds_maps = here != kernels::Quantized::none || base.format == kernels::Quantized::none ||
                          std::any_of(held.begin(), held.end(), [&](const Parameters::Saved& one) {
                            return std::find(base.quantized.begin(), base.quantized.end(),
                                             one.piece.tensor.name) != base.quantized.end();
                          });
  if (here == base.format || !holds_maps) return;
  const auto word = [](kernels::Quantized format) {
    return format == kernels::Quantized::none ? "compute" : kernels::name_of(format);
  };
  throw base::ConfigError(
      169, fmt::format("{} was trained with tune.base = \"{}\", this run has \"{}\"; resuming would change "
                       "the model under the adapter: set tune.base as it was, or start a new run with "
                       "tune.adapter",
                       folder, word(base.format), word(here)));
}

// What can fail on one rank alone: nobody else is needed here.
checkpoint::Manifest load_own(Parameters& parameters, device::Device& device, const std::string& folder,
                              checkpoint::HashSums& hashes) {
  const Opened from(folder);
  if (!from.manifest())
    throw checkpoint::CheckpointError(320,
                                      folder + " has no manifest.json, so it is not a checkpoint of a run");
  const checkpoint::Manifest& manifest = *from.manifest();
  if (manifest.state.size() != sizeof(kernels::StepState)) {
    throw checkpoint::CheckpointError(
        321,
        folder +
            "/manifest.json: the training state has a different size; it was written by another version");
  }
  kernels::StepState state;
  std::memcpy(&state, manifest.state.data(), sizeof state);
  const auto usable = [](double factor) { return std::isfinite(factor) && factor > 0; };
  if (!usable(state.loss_scale) || !(state.beta1_power >= 0 && state.beta1_power <= 1) ||
      !(state.beta2_power >= 0 && state.beta2_power <= 1)) {
    throw checkpoint::CheckpointError(321,
                                      folder + "/manifest.json: the training state has impossible values");
  }
  Held held = parameters.saved();
  // The model under an adapter was read from its own folder, and is told by params_hash.
  if (manifest.base) check_format(*manifest.base, held, folder);
  if (manifest.base) std::erase_if(held, [](const Parameters::Saved& one) { return one.frozen; });
  for (const Parameters::Saved& one : held) {
    const checkpoint::Whole& tensor = one.piece.tensor;
    if (tensor.kind != Kind::moment || !from.has(tensor.name)) continue;
    const device::DType stored = from.find(tensor.name).dtype;
    if (stored == tensor.dtype) continue;
    throw base::ConfigError(
        188, fmt::format("{} stores moments as {}, this run as {}; resuming would change the result: set "
                         "optim.moments as it was, or start a new run from its weights with model.from",
                         folder, device::name_of(stored), device::name_of(tensor.dtype)));
  }
  read_held(device, from, held, &hashes);
  if (!std::isfinite(state.loss)) state.loss = 0;  // how the step before ended: this run has its own policy
  state.apply = 1;
  parameters.write(parameters.state(), &state);
  return manifest;
}

// A folder that says that the head is the embedding, and holds another head: transformers takes the head or
// the embedding, depending on its version, and each gives another loss.
void check_tied(const Opened& from, const model::HuggingFace& names) {
  const std::string embedding = names.tokens + ".weight", head = names.head + ".weight";
  if (!from.has(head) || !from.has(embedding) || from.same(head, embedding)) return;
  throw checkpoint::CheckpointError(
      311, fmt::format("{} contains an {} that differs from {}, but its config.json declares them tied "
                       "(tie_word_embeddings; without it, the default of its model_type); set it correctly",
                       from.folder(), head, embedding));
}

// Weights that this folder has under another of their names are looked for under that one.
Held as_named_in(const Opened& from, Held held, const std::string& family) {
  const std::optional<model::HuggingFace>& names = model::find_family(family).huggingface;
  if (!names) return held;
  for (Parameters::Saved& one : held) {
    std::string& name = one.piece.tensor.name;
    for (const auto& [other, ours] : names->other_names) {
      if (name == ours && !from.has(ours) && from.has(other)) name = other;
    }
  }
  return held;
}

}  // namespace

void all_or_none(const Ranks& ranks, const std::string& folder, const std::function<void()>& read) {
  std::exception_ptr error;
  try {
    read();
  } catch (const base::Error&) {
    error = std::current_exception();
  }
  const double failed = ranks.sum(std::vector<double>{error ? 1.0 : 0.0})[0];
  if (error) std::rethrow_exception(error);
  if (failed > 0)
    throw checkpoint::CheckpointError(
        325, fmt::format("{}: {:.0f} of {} ranks could not read it", folder, failed, ranks.size()));
}

int64_t load_checkpoint(Session& session, const std::string& folder) {
  Parameters& parameters = *session.parameters;
  checkpoint::Manifest manifest;
  checkpoint::HashSums hashes;
  all_or_none(*session.ranks, folder,
              [&] { manifest = load_own(parameters, *session.plan.device, folder, hashes); });
  parameters.refresh_compute();
  if (manifest.params_hash.empty()) return manifest.step;
  const bool hashed = session.plan.device->id().kind == device::Kind::cpu && !manifest.base;
  if ((hashed ? parameters.hash_of(hashes) : parameters.hash()) == manifest.params_hash) return manifest.step;
  if (manifest.base) {
    throw checkpoint::CheckpointError(
        342,
        fmt::format("{} was trained on the model in {}, and the weights read from {} are others: restore "
                    "them, or train again",
                    folder, manifest.base->folder, session.weights_from.folder));
  }
  throw checkpoint::CheckpointError(
      322, folder + ": params_hash of the loaded parameters does not match manifest.json");
}

namespace {

void adopt_from(recipe::Resolved& resolved, const std::string& folder) {
  const auto& model = resolved.recipe.model;
  const Opened from(folder, checkpoint::Adapters::apart);
  if (!from.config_json().empty()) {
    model::adopt_config(resolved, from.config_json(), from.folder() + "/config.json");
    if (model.tied) check_tied(from, *model::find_family(model.family).huggingface);
    return;
  }
  if (!model::find_family(model.family).huggingface) return;  // the recipe alone says what it is
  if (from.manifest()) {
    throw checkpoint::CheckpointError(
        336, from.folder() +
                 " is a checkpoint of a model built by a C++ program (run::Own), and only that program can "
                 "rebuild it; run it with this checkpoint, or use `lockstep inspect` to list the tensors");
  }
  throw checkpoint::CheckpointError(306,
                                    from.folder() +
                                        " has weights but no config.json, which defines the number of heads, "
                                        "among others; download it from where the weights came from");
}

}  // namespace

std::string module_file_of(const std::string& from) {
  if (from.empty() || model::is_module_file(from)) return from;
  if (from.find("://") != std::string::npos) return "";
  std::string module;
  try {
    checkpoint::for_first_usable(checkpoint::model_folders(from), [&](const std::string& folder) {
      const checkpoint::Opened opened(folder);
      if (!opened.manifest()) return;
      recipe::RecipeSource source;
      source.text = opened.manifest()->recipe_toml;
      const std::string began_with = recipe::read_recipe(source).recipe.model.from;
      if (!model::is_module_file(began_with)) return;
      // A run that was moved has its module with it, if Python put it there.
      const std::filesystem::path moved = std::filesystem::path(folder) / "../../module.pt";
      const bool here = !std::filesystem::exists(began_with) && std::filesystem::exists(moved);
      module = here ? moved.lexically_normal().string() : began_with;
    });
  } catch (const base::Error&) {
    return "";  // whoever opens it says why it cannot be
  }
  return module;
}

void adopt_model(recipe::Resolved& resolved) {
  adopt_adapter(resolved);
  if (resolved.recipe.model.from.empty() || !module_file_of(resolved.recipe.model.from).empty()) return;
  checkpoint::for_first_usable(checkpoint::model_folders(resolved.recipe.model.from),
                               [&](const std::string& folder) {
                                 recipe::Resolved adopted = resolved;
                                 adopt_from(adopted, folder);
                                 resolved = std::move(adopted);
                               });
}

checkpoint::Taken load_weights(Parameters& parameters, device::Device& device, const Ranks& ranks,
                               const std::string& family, const std::string& folder,
                               checkpoint::Adapters adapters) {
  Held held = parameters.saved();
  std::erase_if(held, [](const Parameters::Saved& one) {
    return one.piece.tensor.kind == Kind::moment || checkpoint::is_adapter_tensor(one.piece.tensor.name);
  });
  checkpoint::Taken taken =
      checkpoint::for_first_usable(checkpoint::model_folders(folder), [&](const std::string& one) {
        all_or_none(ranks, one, [&] {
          const Opened from(one, adapters);
          read_held(device, from, as_named_in(from, held, family));
        });
      });
  parameters.refresh_compute();
  return taken;
}

}  // namespace lockstep::run
