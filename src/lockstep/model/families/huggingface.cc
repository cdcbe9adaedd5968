#include "lockstep/model/families/huggingface.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/base/text.h"
#include "lockstep/model/families/family.h"
#include "lockstep/model/families/huggingface_config.h"

namespace lockstep::model {

namespace {

using base::ConfigError;

// The family whose model a folder holds; refused with those that can be read.
const Family& family_of(const ConfigReader& config) {
  const std::string type = config.text("model_type", "");
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (!family.huggingface) continue;
    for (const std::string& one : family.huggingface->model_types) {
      if (one == type) return family;
      known.push_back(one);
    }
  }
  config.refuse(fmt::format("model_type {} is not supported; supported are {}",
                            type.empty() ? "(missing)" : base::quoted(type), base::listed(known, "and")));
}

// Not said by the user, or said to be what it is anyway (a file from `lockstep init` names every key).
bool left_alone(const recipe::Resolved& resolved, const std::string& name) {
  const std::string& origin = resolved.origin.at(name);
  const recipe::Key* key = recipe::find_key(name);
  const std::string value = recipe::value_text(*key, resolved.recipe);
  return value == "\"auto\"" || (origin != "command line" && value == recipe::default_text(*key));
}

// The value as the recipe would print it, so that 1e-05 and 0.00001 are the same.
std::string printed(const ConfigSetting& setting) {
  recipe::Recipe recipe;
  recipe::set_value(recipe, setting.key, setting.value);
  return recipe::value_text(*recipe::find_key(setting.key), recipe);
}

// Two names of one nonlinearity; "auto" is a name too.
bool means_the_same(const ConfigSetting& setting, recipe::Recipe::Model said, const std::string& family) {
  if (setting.key != "model.activation") return false;
  said.family = family;  // what the folder says it is
  return activation_of(said) == activation_named(setting.value);
}

void check_preset(const recipe::Recipe& recipe, const ConfigSettings& settings, const std::string& path) {
  if (recipe.model.preset.empty()) return;
  for (const Preset& preset : find_family(recipe.model.family).presets) {
    if (preset.name != recipe.model.preset) continue;
    for (const auto& [key, value] : preset.keys) {
      for (const ConfigSetting& setting : settings) {
        if (setting.key != key || setting.free || printed({key, value}) == printed(setting)) continue;
        throw ConfigError(
            178, fmt::format("model.preset = \"{}\" means {} = {}, but {} says {}; remove model.preset",
                             preset.name, key, value, path, setting.value));
      }
    }
  }
}

}  // namespace

std::string huggingface_config(const recipe::Recipe& recipe) {
  const auto& m = recipe.model;
  const std::optional<HuggingFace>& known = find_family(m.family).huggingface;
  if (!known) return "";
  ConfigWriter c;
  c["architectures"] = std::vector<std::string>{known->architecture};
  c["model_type"] = known->model_types.front();
  known->write(m, c);
  c["vocab_size"] = m.vocab.value;
  c["tie_word_embeddings"] = m.tied;
  c["torch_dtype"] = "float32";
  c["initializer_range"] = m.init_std;
  c["bos_token_id"] = nullptr;
  c["eos_token_id"] = nullptr;
  return c.to_text();
}

void adopt_config(recipe::Resolved& resolved, const std::string& text, const std::string& path) {
  const ConfigReader config(text, path);
  const Family& family = family_of(config);
  if (config.has("quantization_config"))
    config.refuse("it has a quantization_config: save the model unquantized");
  ConfigSettings settings = family.huggingface->read(config);
  settings.push_back({"model.family", family.name});
  for (const ConfigSetting& setting : settings) {
    const recipe::Key* key = recipe::find_key(setting.key);
    const std::string said = recipe::value_text(*key, resolved.recipe);
    if (said == printed(setting) || means_the_same(setting, resolved.recipe.model, family.name)) {
      std::string& origin = resolved.origin.at(setting.key);
      if (origin == "default")
        origin = path;  // the folder says so: what is usual in its family does not count
      continue;
    }
    if (left_alone(resolved, setting.key)) {
      recipe::set_value(resolved.recipe, setting.key, setting.value);
      resolved.origin[setting.key] = path;
    } else if (!setting.free) {
      throw ConfigError(
          178, fmt::format("{} = {} ({}), but {} says {}; remove the key, or start from another folder",
                           setting.key, said, resolved.origin.at(setting.key), path, printed(setting)));
    }
  }
  check_preset(resolved.recipe, settings, path);
  resolved.recipe.model.preset.clear();  // the folder has said it all
}

void check_vocabulary(const recipe::Resolved& resolved, const DataTokens& data) {
  const auto& recipe = resolved.recipe;
  const std::string& origin = resolved.origin.at("model.vocab");
  if (recipe.model.from.empty() || !origin.starts_with(recipe.model.from)) return;
  const int64_t vocab = recipe.model.vocab.value, padded = base::round_up(data.vocab, 64);
  // Files of token numbers do not say whose they are; they fit when none is too large.
  const bool fits = data.of_any_tokenizer ? data.vocab <= vocab : vocab == data.vocab || vocab == padded;
  if (fits) return;
  throw ConfigError(
      179,
      fmt::format("the model in {} has {} tokens, but the data has {} ({}): they cannot be the same tokens, "
                  "and training would be meaningless. Encode the data with the model's own tokenizer into a "
                  "token file (data.kind=tokens); if they are the same after all, set model.vocab={}",
                  recipe.model.from, vocab, data.vocab, data.describe, vocab));
}

}  // namespace lockstep::model
