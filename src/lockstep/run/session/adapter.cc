#include "lockstep/run/session/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/model/adapters.h"
#include "lockstep/model/families/family.h"
#include "lockstep/run/session/load.h"

namespace lockstep::run {

namespace {

namespace fs = std::filesystem;
using checkpoint::Opened;
using Held = std::vector<Parameters::Saved>;

constexpr int64_t kMostRepeated = 1 << 16;

// "model.layers.3.mlp.up_proj" as "model.layers.*.mlp.up_proj", and the number; -1: it has none.
std::pair<std::string, int64_t> without_number(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.size() < 6 && part.find_first_not_of("0123456789") == std::string::npos)
      return {name.substr(0, begin) + "*" + name.substr(end), std::stoll(part)};
    begin = end + 1;
  }
  return {name, -1};
}

// Names of maps as a list that tune.targets can hold: those of all layers from 0 on as one pattern, others
// one by one. Whether these are all layers of the model shows when the adapter is loaded.
std::string targets_of(const std::vector<std::string>& maps) {
  std::map<std::string, std::set<int64_t>> layers;
  int64_t most = 0;
  for (const std::string& map : maps) {
    const auto [pattern, number] = without_number(map);
    layers[pattern].insert(number);
    most = std::max(most, number + 1);
  }
  std::vector<std::string> targets;
  for (const std::string& map : maps) {
    const auto [pattern, number] = without_number(map);
    const std::set<int64_t>& numbers = layers.at(pattern);
    const bool all = number >= 0 && most < kMostRepeated && static_cast<int64_t>(numbers.size()) == most;
    const std::string target = all ? pattern : map;
    if (std::find(targets.begin(), targets.end(), target) == targets.end()) targets.push_back(target);
  }
  return base::join(targets, ",");
}

// As TOML.
std::string text_value(const std::string& text) { return "\"" + text + "\""; }

struct Setting {
  const char* key;
  std::string value;
};

std::vector<Setting> settings_of(const Opened& from) {
  std::vector<std::string> maps, beside;
  for (const std::string& name : from.names()) {
    const bool moment = from.find(name).kind == checkpoint::Kind::moment;
    if (moment) continue;
    if (!checkpoint::is_adapter_tensor(name)) {
      beside.push_back(name);
    } else if (name.ends_with(model::kAdapterA)) {
      maps.push_back(name.substr(0, name.size() - std::string_view(model::kAdapterA).size()));
    }
  }
  if (maps.empty())
    throw checkpoint::CheckpointError(
        343, fmt::format("{} holds no adapter: none of its tensors is a lora_A", from.folder()));
  if (!from.adapter() && !from.manifest()) {
    throw checkpoint::CheckpointError(
        340,
        fmt::format("{} has no {}, which says how much its adapter counts; copy it from where the adapter "
                    "came from",
                    from.folder(), checkpoint::kAdapterConfigName));
  }
  if (!from.adapter()) {  // a whole checkpoint of a run with adapters
    recipe::RecipeSource source;
    source.text = from.manifest() ? from.manifest()->recipe_toml : "";
    const recipe::Recipe::Tune tune = recipe::read_recipe(source).recipe.tune;
    return {{"tune.rank", fmt::format("{}", tune.rank)},
            {"tune.alpha", fmt::format("{}", tune.alpha)},
            {"tune.scaling", text_value(tune.scaling)},
            {"tune.targets", text_value(tune.targets)},
            {"tune.train", text_value(tune.train)}};
  }
  const checkpoint::AdapterConfig& config = *from.adapter();
  return {{"tune.rank", fmt::format("{}", config.rank)},
          {"tune.alpha", fmt::format("{}", config.alpha)},
          {"tune.scaling", text_value(config.root ? "sqrt" : "rank")},
          {"tune.targets", text_value(targets_of(maps))},
          {"tune.train", text_value(base::join(beside, ","))}};
}

void adopt(recipe::Resolved& resolved, const Setting& setting, const std::string& folder) {
  const recipe::Key& key = *recipe::find_key(setting.key);
  recipe::Recipe said;
  recipe::set_value(said, setting.key, setting.value);
  const std::string wanted = recipe::value_text(key, said), has = recipe::value_text(key, resolved.recipe);
  std::string& origin = resolved.origin[setting.key];
  // What maps and weights are called by can be said in several ways: loading finds what does not fit.
  const bool names = key.list && (has != recipe::default_text(key) || origin == recipe::kCommandLine);
  if (wanted == has || names) return;
  if (has == recipe::default_text(key) && origin != recipe::kCommandLine) {
    recipe::set_value(resolved.recipe, setting.key, setting.value);
    origin = folder;
    return;
  }
  throw base::ConfigError(197, fmt::format("{} = {} ({}), but the adapter in {} has {}; remove the key, or "
                                           "start from another adapter",
                                           setting.key, has, origin, folder, wanted));
}

// Not a weight of this model, or of another shape.
void check_names(const Opened& from, const std::map<std::string, device::Shape>& known) {
  for (const std::string& name : from.names()) {
    const checkpoint::Whole tensor = from.find(name);
    if (tensor.kind == checkpoint::Kind::moment) continue;
    const auto found = known.find(name);
    if (found != known.end() && found->second == tensor.shape) continue;
    throw checkpoint::CheckpointError(
        343,
        found == known.end()
            ? fmt::format("{} is an adapter of another model, or of other tune.targets: it has {}, which "
                          "this model has not",
                          from.folder(), base::quoted(name))
            : fmt::format("{} is an adapter of another model: {} has shape {}, and this model needs {}",
                          from.folder(), base::quoted(name), tensor.shape.to_string(),
                          found->second.to_string()));
  }
  for (const auto& [name, shape] : known) {
    if (!checkpoint::is_adapter_tensor(name) || from.has(name)) continue;
    throw checkpoint::CheckpointError(
        343,
        fmt::format("{} has no {}: it is an adapter of another model, or of fewer maps than tune.targets",
                    from.folder(), base::quoted(name)));
  }
}

bool same_folder(const std::string& one, const std::string& other) {
  std::error_code error;
  return fs::equivalent(one, other, error);
}

}  // namespace

void adopt_adapter(recipe::Resolved& resolved) {
  const recipe::Recipe::Tune& tune = resolved.recipe.tune;
  if (tune.adapter.empty() || tune.method != "lora") return;
  checkpoint::for_first_usable(checkpoint::model_folders(tune.adapter), [&](const std::string& folder) {
    recipe::Resolved adopted = resolved;
    for (const Setting& setting : settings_of(Opened(folder))) adopt(adopted, setting, folder);
    resolved = std::move(adopted);
  });
}

checkpoint::Adapters under_adapter(const recipe::Recipe& recipe) {
  const bool own = recipe.tune.method == "lora" && !recipe.tune.adapter.empty() &&
                   same_folder(recipe.model.from, recipe.tune.adapter);
  return own ? checkpoint::Adapters::apart : checkpoint::Adapters::merged;
}

checkpoint::Taken load_adapter(Parameters& parameters, device::Device& device, const Ranks& ranks,
                               const model::Model& model, const std::string& folder) {
  std::map<std::string, device::Shape> known;  // of all blocks, whichever this rank has
  for (const model::Block& block : model.blocks) {
    for (const model::ParamSpec& spec : block.params()) {
      if (spec.holds_values()) known.emplace(spec.name, whole_shape(spec.cut, spec.shape));
    }
  }
  Held held = parameters.saved();
  std::erase_if(held, [](const auto& one) { return one.piece.tensor.kind != checkpoint::Kind::weight; });
  checkpoint::Taken taken =
      checkpoint::for_first_usable(checkpoint::model_folders(folder), [&](const std::string& one) {
        all_or_none(ranks, one, [&] {
          const Opened from(one);
          check_names(from, known);
          Held there = held;
          std::erase_if(there, [&](const auto& saved) { return !from.has(saved.piece.tensor.name); });
          read_held(device, from, there);
        });
      });
  parameters.refresh_compute();
  return taken;
}

checkpoint::AdapterConfig adapter_config(const Plan& plan, const std::string& base) {
  const recipe::Recipe& recipe = plan.recipe();
  const model::Model& model = *plan.model;
  checkpoint::AdapterConfig config{.base = base,
                                   .rank = recipe.tune.rank,
                                   .alpha = recipe.tune.alpha,
                                   .dropout = recipe.tune.dropout,
                                   .root = recipe.tune.scaling == "sqrt",
                                   .targets = model::target_names(model)};
  std::set<std::string> modules;
  for (const model::Block& block : model.blocks) {
    for (const model::ParamSpec& spec : block.params()) {
      if (spec.trained() && !spec.adapter) modules.insert(spec.name.substr(0, spec.name.rfind('.')));
    }
  }
  config.modules = {modules.begin(), modules.end()};
  const std::optional<model::HuggingFace>& known = model::find_family(recipe.model.family).huggingface;
  config.transposed = known && known->weights_by_input;
  return config;
}

checkpoint::Base base_of(const Session& session) {
  const std::string& folder = session.weights_from.folder;
  checkpoint::Base base{.folder = fs::absolute(folder).lexically_normal().string(),
                        .fingerprint = Opened(folder, checkpoint::Adapters::apart).fingerprint()};
  for (const model::Block& block : session.plan.model->blocks) {
    for (const model::ParamSpec& spec : block.params()) {
      if (!spec.holds_values() || model::stored_as(spec) != model::Stored::quantized) continue;
      base.format = spec.train.format;
      base.quantized.push_back(spec.name);
    }
  }
  return base;
}

}  // namespace lockstep::run
