#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/model/families/family.h"
#include "lockstep/model/families/huggingface.h"
#include "lockstep/model/segments/activation.h"

namespace lockstep::model {

namespace {

using base::ConfigError;
using Json = nlohmann::json;

constexpr size_t kMostFactors = 128;  // of a RoPE scaling: half a head

// config.json, read with the defaults that transformers gives to what is left out.
class Config {
 public:
  Config(const std::string& text, const std::string& path)
      : path_(path), json_(Json::parse(text, nullptr, false)) {
    if (!json_.is_object()) refuse("it is not a JSON object");
  }
  Config(const Json& json, const std::string& path) : path_(path), json_(json) {}

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  bool holds_something(const char* key) const { return has(key) && !json_[key].empty(); }
  int64_t size(const char* key) const {
    if (!has(key)) refuse(fmt::format("\"{}\" is missing", key));
    if (!json_[key].is_number_integer() || json_[key].get<double>() < 1 || json_[key].get<double>() > 1e12)
      refuse(fmt::format("\"{}\" is not a size", key));
    return json_[key].get<int64_t>();
  }
  int64_t size(const char* key, int64_t otherwise) const { return has(key) ? size(key) : otherwise; }
  // gpt2's own name of a size, or the one that other models have, which transformers reads as well.
  int64_t size(const char* key, const char* other_key, int64_t otherwise) const {
    const int64_t size_here = size(key, size(other_key, otherwise));
    if (const int64_t there = size(other_key, size_here); there != size_here)
      refuse(fmt::format("\"{}\" is {}, but \"{}\" is {}", key, size_here, other_key, there));
    return size_here;
  }
  double number(const char* key) const {
    if (!has(key)) refuse(fmt::format("\"{}\" is missing", key));
    if (!json_[key].is_number() || !(json_[key].get<double>() > 0))
      refuse(fmt::format("\"{}\" is not a number above 0", key));
    return json_[key].get<double>();
  }
  double number(const char* key, double otherwise) const { return has(key) ? number(key) : otherwise; }
  bool truth(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_boolean()) refuse(fmt::format("\"{}\" is neither true nor false", key));
    return json_[key].get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_string()) refuse(fmt::format("\"{}\" is not text", key));
    return json_[key].get<std::string>();
  }
  std::vector<double> numbers(const char* key) const {
    if (!has(key)) refuse(fmt::format("\"{}\" is missing", key));
    std::vector<double> all;
    for (const Json& one : json_[key]) {
      all.push_back(one.is_number() ? one.get<double>() : 0);
      if (!json_[key].is_array() || !(all.back() > 0) || all.size() > kMostFactors)
        refuse(fmt::format("\"{}\" is not a list of up to {} numbers above 0", key, kMostFactors));
    }
    return all;
  }
  Config part(const char* key) const {
    if (has(key) && !json_[key].is_object()) refuse(fmt::format("\"{}\" is not an object", key));
    return {has(key) ? json_[key] : Json::object(), path_};
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw ConfigError(177, fmt::format("{} describes a model that cannot be started from: {}", path_, why));
  }

 private:
  std::string path_;
  Json json_;
};

struct Setting {
  std::string key, value;  // as TOML
  bool free = false;       // the weights do not depend on it: the recipe may say otherwise
};
using Settings = std::vector<Setting>;

std::string toml(int64_t n) { return std::to_string(n); }
std::string toml(double n) { return fmt::format("{}", n); }
std::string toml(bool yes) { return yes ? "true" : "false"; }
std::string toml(const std::vector<double>& numbers) {
  return fmt::format("\"{}\"", fmt::join(numbers, ","));
}

std::string read_activation(const Config& c, const char* key, const char* usual) {
  const std::string name = c.text(key, usual);
  if (!activation_named(name))
    c.refuse(fmt::format("{} {} is not known; there are {}", key, base::quoted(name), activation_names()));
  return name;
}

Settings read_gpt2(const Config& c) {
  if (!c.truth("scale_attn_weights", true)) c.refuse("scale_attn_weights is false");
  if (c.truth("scale_attn_by_inverse_layer_idx", false)) c.refuse("scale_attn_by_inverse_layer_idx is true");
  if (c.truth("add_cross_attention", false)) c.refuse("add_cross_attention is true");
  const int64_t hidden = c.size("n_embd", "hidden_size", 768);
  const int64_t heads = c.size("n_head", "num_attention_heads", 12);
  return {{"model.layers", toml(c.size("n_layer", "num_hidden_layers", 12))},
          {"model.hidden", toml(hidden)},
          {"model.heads", toml(heads)},
          {"model.kv_heads", toml(heads)},
          {"model.ffn", toml(c.size("n_inner", 4 * hidden))},
          {"model.context", toml(c.size("n_positions", "max_position_embeddings", 1024))},
          {"model.norm_epsilon", toml(c.number("layer_norm_epsilon", 1e-5))},
          {"model.tied", toml(c.truth("tie_word_embeddings", true))},
          {"model.activation", read_activation(c, "activation_function", "gelu_new")},
          {"model.vocab", toml(c.size("vocab_size", 50257))}};
}

// What YaRN multiplies cosines and sines with, where it is not the usual.
double yarn_attention(const Config& rope, double factor) {
  if (rope.has("attention_factor")) return rope.number("attention_factor");
  if (!rope.has("mscale") || !rope.has("mscale_all_dim")) return 0;
  const auto part = [&](const char* key) {
    return factor > 1 ? 1 + 0.1 * rope.number(key) * std::log(factor) : 1;
  };
  return part("mscale") / part("mscale_all_dim");
}

void read_yarn(const Config& rope, double stretch, Settings& settings) {
  if (!rope.truth("truncate", true)) rope.refuse("truncate is false");
  const double factor = rope.number("factor", stretch);
  settings.push_back({"model.rope_scaling", toml(factor)});
  settings.push_back({"model.rope_low_freq", toml(rope.number("beta_slow", 1))});
  settings.push_back({"model.rope_high_freq", toml(rope.number("beta_fast", 32))});
  settings.push_back({"model.rope_attention", toml(yarn_attention(rope, factor))});
}

void read_longrope(const Config& rope, double stretch, Settings& settings) {
  settings.push_back({"model.rope_scaling", toml(rope.number("factor", stretch))});
  settings.push_back({"model.rope_short_factor", toml(rope.numbers("short_factor"))});
  settings.push_back({"model.rope_long_factor", toml(rope.numbers("long_factor"))});
  settings.push_back({"model.rope_attention", toml(rope.number("attention_factor", 0))});
}

// Older files have rope_theta and rope_scaling, newer ones rope_parameters with both. Where both stand,
// transformers goes by rope_scaling.
void read_rope(const Config& c, int64_t context, Settings& settings) {
  const Config rope = c.part(c.holds_something("rope_scaling") ? "rope_scaling" : "rope_parameters");
  settings.push_back({"model.rope_theta", toml(rope.number("rope_theta", c.number("rope_theta", 10000)))});
  if (rope.number("partial_rotary_factor", c.number("partial_rotary_factor", 1)) != 1)
    c.refuse("partial_rotary_factor is not 1");
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") {
    settings.push_back({"model.rope_scaling", "0.0"});
    return;
  }
  const std::vector<std::string>& known = recipe::find_key("model.rope_type")->choices;
  if (std::find(known.begin(), known.end(), type) == known.end()) {
    c.refuse(fmt::format("RoPE scaling of type {} is not known; there are {}", base::quoted(type),
                         base::join(known, ", ")));
  }
  settings.push_back({"model.rope_type", type});
  if (type == "linear") {
    settings.push_back({"model.rope_scaling", toml(rope.number("factor"))});
    return;
  }
  if (type == "dynamic") {  // it begins at the model's length, whatever else the file says
    settings.push_back({"model.rope_scaling", toml(rope.number("factor"))});
    settings.push_back({"model.rope_original_context", toml(context)});
    return;
  }
  const char* const key = "original_max_position_embeddings";
  const int64_t original = c.size(key, rope.size(key, context));
  settings.push_back({"model.rope_original_context", toml(original)});
  const double stretch = static_cast<double>(context) / static_cast<double>(original);
  if (type == "yarn") return read_yarn(rope, stretch, settings);
  if (type == "longrope") return read_longrope(rope, stretch, settings);
  settings.push_back({"model.rope_scaling", toml(rope.number("factor"))});
  settings.push_back({"model.rope_low_freq", toml(rope.number("low_freq_factor"))});
  settings.push_back({"model.rope_high_freq", toml(rope.number("high_freq_factor"))});
}

Settings read_llama(const Config& c) {
  const int64_t hidden = c.size("hidden_size", 4096), heads = c.size("num_attention_heads", 32);
  const int64_t context = c.size("max_position_embeddings", 2048);
  Settings settings = {{"model.layers", toml(c.size("num_hidden_layers", 32))},
                       {"model.hidden", toml(hidden)},
                       {"model.heads", toml(heads)},
                       {"model.kv_heads", toml(c.size("num_key_value_heads", heads))},
                       {"model.head_dim", toml(c.size("head_dim", hidden / heads))},
                       {"model.ffn", toml(c.size("intermediate_size", 11008))},
                       {"model.context", toml(context), true},
                       {"model.norm_epsilon", toml(c.number("rms_norm_eps", 1e-6))},
                       {"model.tied", toml(c.truth("tie_word_embeddings", false))},
                       {"model.activation", read_activation(c, "hidden_act", "silu")},
                       {"model.attention_bias", toml(c.truth("attention_bias", false))},
                       {"model.mlp_bias", toml(c.truth("mlp_bias", false))},
                       {"model.vocab", toml(c.size("vocab_size", 32000))}};
  read_rope(c, context, settings);
  return settings;
}

Settings read_settings(const Config& c) {
  const std::string type = c.text("model_type", "");
  if (type != "gpt2" && type != "llama") {
    c.refuse(fmt::format("model_type {} is not known; gpt2 and llama are",
                         type.empty() ? "(missing)" : base::quoted(type)));
  }
  if (c.has("quantization_config")) c.refuse("it has a quantization_config: save the model unquantized");
  Settings settings = type == "gpt2" ? read_gpt2(c) : read_llama(c);
  settings.push_back({"model.family", type});
  return settings;
}

// Not said by the user, or said to be what it is anyway (a file from `lockstep init` names every key).
bool left_alone(const recipe::Resolved& resolved, const std::string& name) {
  const std::string& origin = resolved.origin.at(name);
  const recipe::Key* key = recipe::find_key(name);
  const std::string value = recipe::value_text(*key, resolved.recipe);
  return value == "\"auto\"" || (origin != "command line" && value == recipe::default_text(*key));
}

// The value as the recipe would print it, so that 1e-05 and 0.00001 are the same.
std::string printed(const Setting& setting) {
  recipe::Recipe recipe;
  recipe::set_value(recipe, setting.key, setting.value);
  return recipe::value_text(*recipe::find_key(setting.key), recipe);
}

// Two names of one nonlinearity; "auto" is a name too.
bool means_the_same(const Setting& setting, recipe::Recipe::Model said, const Settings& settings) {
  if (setting.key != "model.activation") return false;
  said.family = settings.back().value;  // what the folder says it is
  return activation_of(said) == activation_named(setting.value);
}

void check_preset(const recipe::Recipe& recipe, const Settings& settings, const std::string& path) {
  if (recipe.model.preset.empty()) return;
  for (const Preset& preset : find_family(recipe.model.family).presets) {
    if (preset.name != recipe.model.preset) continue;
    for (const auto& [key, value] : preset.keys) {
      for (const Setting& setting : settings) {
        if (setting.key != key || setting.free || printed({key, value}) == printed(setting)) continue;
        throw ConfigError(
            178, fmt::format("model.preset = \"{}\" means {} = {}, but {} says {}: leave model.preset out",
                             preset.name, key, value, path, setting.value));
      }
    }
  }
}

}  // namespace

void adopt_config(recipe::Resolved& resolved, const std::string& text, const std::string& path) {
  const Settings settings = read_settings(Config(text, path));
  for (const Setting& setting : settings) {
    const recipe::Key* key = recipe::find_key(setting.key);
    const std::string said = recipe::value_text(*key, resolved.recipe);
    if (said == printed(setting) || means_the_same(setting, resolved.recipe.model, settings)) continue;
    if (left_alone(resolved, setting.key)) {
      recipe::set_value(resolved.recipe, setting.key, setting.value);
      resolved.origin[setting.key] = path;
    } else if (!setting.free) {
      throw ConfigError(
          178, fmt::format("{} = {} ({}), but {} says {}: leave the key out, or start from another folder",
                           setting.key, said, resolved.origin.at(setting.key), path, printed(setting)));
    }
  }
  check_preset(resolved.recipe, settings, path);
  resolved.recipe.model.preset.clear();  // the folder has said it all
}

void check_vocabulary(const recipe::Resolved& resolved, int64_t data_vocab, const std::string& data) {
  const auto& recipe = resolved.recipe;
  const std::string& origin = resolved.origin.at("model.vocab");
  if (recipe.model.from.empty() || !origin.starts_with(recipe.model.from)) return;
  const int64_t vocab = recipe.model.vocab.value, padded = (data_vocab + 63) / 64 * 64;
  // Files of token numbers do not say whose they are; they fit when none is too large.
  const bool fits =
      recipe.data.kind == "tokens" ? data_vocab <= vocab : vocab == data_vocab || vocab == padded;
  if (fits) return;
  throw ConfigError(
      179,
      fmt::format(
          "the model of {} knows {} tokens, the data has {} ({}): they cannot be the same tokens, and it "
          "would learn nonsense. Encode the data with the model's own tokenizer into a file of tokens "
          "(data.kind=tokens); if they are the same after all, say so with model.vocab={}",
          recipe.model.from, vocab, data_vocab, data, vocab));
}

}  // namespace lockstep::model
