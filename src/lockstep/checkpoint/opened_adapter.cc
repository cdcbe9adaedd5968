#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/opened_state.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/recipe/weight_order.h"

namespace lockstep::checkpoint {

namespace fs = std::filesystem;

// A folder with PEFT's files: the adapter itself, what lies under it, or both in one.
void Opened::State::open_adapter(Adapters adapters) {
  const std::string path = folder + "/" + kAdapterConfigName;
  if (stands(folder, kAdapterConfigName))
    adapter = parse_adapter_config(read_config(folder, kAdapterConfigName), path);
  if (adapters == Adapters::alone) return;
  if (manifest ? manifest->base.has_value() : adapter.has_value()) open_base();
  if (adapters != Adapters::merged) return;
  if (manifest && manifest->base)
    rounded = {manifest->base->quantized.begin(), manifest->base->quantized.end()};
  if (adapter) return add_merged(static_cast<float>(adapter->scale()));
  if (!manifest) return;
  // A whole checkpoint of a run with adapters: its recipe says what PEFT's file would.
  const bool any = std::any_of(tensors.begin(), tensors.end(),
                               [](const auto& one) { return is_adapter_tensor(one.first); });
  if (!any) return;
  recipe::RecipeSource source;
  source.text = manifest->recipe_toml;
  const recipe::Recipe::Tune tune = recipe::read_recipe(source).recipe.tune;
  adapter = AdapterConfig{.rank = tune.rank, .alpha = tune.alpha, .root = tune.scaling == "sqrt"};
  add_merged(static_cast<float>(adapter->scale()));
}

namespace {

// Adapters on adapters come to an end: one that names another that names the first would never.
void check_depth(const std::string& folder, std::string at) {
  constexpr int kMost = 8;
  for (int depth = 0; depth < kMost; ++depth) {
    std::error_code error;
    if (!fs::is_directory(at, error)) return;  // told when it is opened
    const Opened one(at);
    const bool checkpoint = one.manifest() && one.manifest()->base;
    if (!checkpoint && (one.manifest() || !one.adapter())) return;
    at = checkpoint ? one.manifest()->base->folder : one.adapter()->base;
  }
  throw CheckpointError(
      341, fmt::format("{} lies on more than {} adapters one on the other, or on itself: merge them into one "
                       "model with `lockstep export --merge`",
                       folder, kMost));
}

}  // namespace

// The manifest's word on it counts; PEFT's file names a folder or a model of the hub.
void Opened::State::open_base() {
  const std::string named = manifest ? manifest->base->folder : adapter->base;
  std::error_code error;
  if (named.empty() || !fs::is_directory(named, error)) {
    throw CheckpointError(
        341,
        fmt::format("{} is an adapter of the model in {}, and there is no such folder: put the model "
                    "there again (a symbolic link will do), or merge it where the model is",
                    folder, named.empty() ? "a folder that it does not name" : base::quoted(named, 300)));
  }
  if (fs::equivalent(named, folder, error))
    throw CheckpointError(341, fmt::format("{} names itself as the model under its adapter", folder));
  check_depth(folder, named);
  base = std::make_unique<Opened>(named, Adapters::merged);
  if (!manifest || base->fingerprint() == manifest->base->fingerprint) return;
  throw CheckpointError(342, fmt::format("{} was trained on the model in {}, whose weights are now others: "
                                         "restore them, or train again",
                                         folder, named));
}

std::vector<float> Opened::State::values_of(const std::string& name) const {
  const Whole tensor{.name = name, .dtype = device::DType::f32, .shape = shape_of(find(name).entry->shape)};
  std::vector<float> values(static_cast<size_t>(tensor.shape.numel()));
  read({{whole_piece(tensor), values.data()}}, nullptr);
  return values;
}

// Every pair of A and B is read, and fits the weight that it is added to.
void Opened::State::add_merged(float scale) {
  constexpr std::string_view kFirst = ".lora_A.weight";
  for (const auto& [name, place] : tensors) {
    if (!name.ends_with(kFirst)) continue;
    const std::string other = name.substr(0, name.size() - kFirst.size()) + ".lora_B.weight";
    const std::string weight = adapted_weight(name);
    const auto refuse = [&](const std::string& why) {
      throw CheckpointError(343, fmt::format("{}: the adapter of {} {}", folder, base::quoted(weight), why));
    };
    if (!tensors.contains(other)) refuse("has a lora_A and no lora_B");
    if (!has(weight)) refuse("has no weight in the model under it: it is of another model");
    const auto &a = place.entry->shape, &b = tensors.at(other).entry->shape, &w = find(weight).entry->shape;
    if (a.size() != 2 || b.size() != 2 || w.size() != 2 || a[0] != b[1])
      refuse("has matrices that do not fit each other");
    const bool straight = w[0] == b[0] && w[1] == a[1], turned = w[0] == a[1] && w[1] == b[0];
    if (!straight && !turned) {
      refuse(fmt::format("is for {} inputs and {} outputs, and the weight is {}: it is of another model",
                         a[1], b[0], shape_text(w)));
    }
    // A square one does not show which way it lies: GPT-2 keeps its maps as [in, out].
    const bool lies_turned = straight && turned ? adapter->transposed || keeps_inputs_first() : turned;
    merged[weight] = {.in = a[1],
                      .out = b[0],
                      .rank = a[0],
                      .transposed = lies_turned,
                      .scale = scale,
                      .a = values_of(name),
                      .b = values_of(other)};
  }
}

// Read as it is, then added to.
void Opened::State::read_merged(const Wanted& one, const MergedWeight& weight) const {
  LS_ASSERT(one.piece.tensor.dtype == device::DType::f32, "a merged weight is read as fp32");
  if (const auto own = look_up(one.piece.tensor.name); own != tensors.end()) {
    read({one}, nullptr);
  } else if (rounded.contains(one.piece.tensor.name)) {
    read_rounded(one);
  } else {
    base->read({one}, nullptr);
  }
  auto* const values = static_cast<float*>(one.to);
  for (const Run& run : runs_of(one.piece))
    weight.add_to(run.at, {values + run.from, static_cast<size_t>(run.count)});
}

// Of the base, rounded as the adapter's training saw it. Runs that begin or end inside a block are read to
// its borders.
void Opened::State::read_rounded(const Wanted& one) const {
  constexpr int64_t kBlock = kernels::kQuantizedBlock;
  const kernels::Quantized format = manifest->base->format;
  const int64_t all = one.piece.tensor.shape.numel();
  LS_ASSERT(one.piece.tensor.dtype == device::DType::f32, "a rounded weight is read as fp32");
  std::vector<float> blocks;
  for (const Run& run : runs_of(one.piece)) {
    const int64_t begin = run.at / kBlock * kBlock,
                  end = std::min(all, base::round_up(run.at + run.count, kBlock));
    blocks.resize(static_cast<size_t>(end - begin));
    base->read({{part_of(whole_piece(one.piece.tensor), begin, end - begin), blocks.data()}}, nullptr);
    if (!kernels::round_to(format, blocks.data(), end - begin)) {
      throw CheckpointError(
          348, fmt::format("{}: {} has a value that is infinite or not a number; repair the model",
                           base->folder(), one.piece.tensor.name));
    }
    std::copy_n(blocks.begin() + (run.at - begin), run.count, static_cast<float*>(one.to) + run.from);
  }
}

// config.json's word on a square map.
bool Opened::State::keeps_inputs_first() const {
  const std::string& text = config_json.empty() && base ? base->config_json() : config_json;
  const nlohmann::json config = nlohmann::json::parse(text, nullptr, false);
  const nlohmann::json type = config.is_object() ? config.value("model_type", nlohmann::json()) : nullptr;
  return type.is_string() && recipe::weights_by_input(type.get_ref<const std::string&>());
}

}  // namespace lockstep::checkpoint
