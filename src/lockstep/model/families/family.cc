#include "lockstep/model/families/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/base/registry.h"
#include "lockstep/base/round.h"
#include "lockstep/base/text.h"
#include "lockstep/model/adapters.h"
#include "lockstep/model/segments/pieces.h"

namespace lockstep::model {

namespace {

using base::ConfigError;
using ModelKeys = recipe::Recipe::Model;

base::Registry<Family>& registry() {
  static base::Registry<Family> all(
      "family", {gpt2_family(), llama_family(), mistral_family(), qwen2_family(), qwen3_family(),
                 gemma2_family(), gemma3_family(), phi_family(), phi3_family(), olmo2_family(),
                 smollm3_family(), gpt_neox_family(), mlp_family()});
  return all;
}

std::string names_or_none(const std::vector<Preset>& presets) {
  return presets.empty() ? "none" : base::join(base::names_of(presets), ", ");
}

// "llama or qwen3": the families of which this holds, for errors that name a way out.
std::string families_where(bool (*holds)(const Heads&)) {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    if (family.heads && holds(*family.heads)) names.push_back(family.name);
  }
  return base::join(names, " or ");
}

// A preset fills what the user left alone: keys that are not on the command line and still have their default
// value. (A file from `lockstep init` names every key; naming a preset in it must be enough.)
bool left_alone(const recipe::Resolved& resolved, const std::string& name) {
  const std::string& origin = resolved.origin.at(name);
  const recipe::Key* key = recipe::find_key(name);
  return origin == "default" || (origin != "command line" &&
                                 recipe::value_text(*key, resolved.recipe) == recipe::default_text(*key));
}

// Defaults of the family are for keys that nobody names, be it with the recipe's own default. (A run's
// config.toml names them all, and so does the folder that a model comes from.)
bool unsaid(const recipe::Resolved& resolved, const std::string& name) {
  return resolved.origin.at(name) == "default" && resolved.recipe.model.from.empty();
}

void fill(recipe::Resolved& resolved, const KeyValues& keys, const std::string& origin,
          bool (*is_free)(const recipe::Resolved&, const std::string&)) {
  for (const auto& [name, value] : keys) {
    if (!is_free(resolved, name)) continue;
    recipe::set_value(resolved.recipe, name, value);
    resolved.origin[name] = origin;
  }
}

void check_heads(const Family& family, const ModelKeys& m) {
  const bool any_number = family.heads && family.heads->any_number && !m.head_dim.is_auto;
  if (m.hidden % m.heads != 0 && !any_number) {  // of most families transformers opens no such model
    throw ConfigError(122, fmt::format("model.heads = {} does not divide model.hidden = {}; choose one of {}",
                                       m.heads, m.hidden, base::divisors_near(m.hidden, m.heads)));
  }
  const bool own_width = family.heads && family.heads->own_width;
  if (!m.head_dim.is_auto && !own_width && m.head_dim.value * m.heads != m.hidden) {
    throw ConfigError(124, fmt::format("model.head_dim = {}: the heads of a {} divide model.hidden = {}; "
                                       "leave it \"auto\", or set model.family={}",
                                       m.head_dim.value, m.family, m.hidden,
                                       families_where([](const Heads& h) { return h.own_width; })));
  }
}

void check_groups(const Family& family, const ModelKeys& m) {
  const bool divides = m.heads % m.kv_heads.value == 0;
  if (family.heads && !family.heads->grouped && m.kv_heads.value != m.heads) {
    const std::string others = families_where([](const Heads& h) { return h.grouped; });
    throw ConfigError(123, fmt::format("model.kv_heads = {}: a {} has keys and values for each of its {} "
                                       "heads; remove it{}",
                                       m.kv_heads.value, m.family, m.heads,
                                       divides ? ", or set model.family=" + others : ""));
  }
  if (!divides) {
    throw ConfigError(123,
                      fmt::format("model.kv_heads = {} does not divide model.heads = {}; choose one of {}",
                                  m.kv_heads.value, m.heads, base::divisors_near(m.heads, m.kv_heads.value)));
  }
}

void check_sizes(const Family& family, const recipe::Recipe& recipe) {
  const ModelKeys& m = recipe.model;
  check_groups(family, m);
  if (family.check) family.check(recipe);
  if (m.head_dim.value > 256) {
    throw ConfigError(125, fmt::format("model.head_dim = {}: heads wider than 256 are not supported; use "
                                       "more heads",
                                       m.head_dim.value));
  }
  if (m.context.value < recipe.data.seq_len) {
    throw ConfigError(
        126,
        fmt::format(
            "data.seq_len = {} is longer than model.context = {}; raise model.context or lower data.seq_len",
            recipe.data.seq_len, m.context.value));
  }
}

// Keys that only other families read are as if nobody had set them: layers of several families are built by
// the same functions, which look at all of them.
recipe::Recipe as_read(const Family& family, recipe::Recipe recipe) {
  recipe::Recipe untouched;
  for (const Family& other : families()) {
    for (const std::string& name : other.reads) {
      if (std::find(family.reads.begin(), family.reads.end(), name) != family.reads.end()) continue;
      const recipe::Key* const key = recipe::find_key(name);
      LS_ASSERT(key != nullptr, other.name + " reads " + name);
      std::visit([&](auto* value) { *value = *std::get<decltype(value)>(key->member(untouched)); },
                 key->member(recipe));
    }
  }
  return recipe;
}

}  // namespace

const std::vector<Family>& families() { return registry().rows(); }

void register_family(Family family) {
  LS_ASSERT(family.build && family.defaults.ffn,
            "family " + family.name + " has no build function or defaults.ffn");
  registry().add(std::move(family));
}

const Family& find_family(const std::string& name) {
  if (const Family* family = registry().find(name)) return *family;
  throw ConfigError(120, fmt::format("unknown model.family = \"{}\"; choose one of {}", name,
                                     base::join(base::names_of(families()), ", ")));
}

void apply_preset(recipe::Resolved& resolved) {
  const std::string& requested = resolved.recipe.model.preset;
  if (requested.empty()) return;
  const Family& family = find_family(resolved.recipe.model.family);
  const auto preset = std::find_if(family.presets.begin(), family.presets.end(),
                                   [&](const Preset& p) { return p.name == requested; });
  if (preset == family.presets.end()) {
    throw ConfigError(121, fmt::format("model.preset = \"{}\" is not a preset of family {}; choose one of {}",
                                       requested, family.name, names_or_none(family.presets)));
  }
  fill(resolved, preset->keys, "preset " + requested, left_alone);
}

void resolve_model(recipe::Resolved& resolved, int64_t data_vocab) {
  const Family& family = find_family(resolved.recipe.model.family);
  apply_preset(resolved);
  fill(resolved, family.defaults.keys, "family " + family.name, unsaid);
  recipe::Recipe& recipe = resolved.recipe;
  auto& m = recipe.model;
  const auto resolve = [&](recipe::AutoInt& value, const char* key, const auto& n) {
    if (!value.is_auto) return;
    value = n();
    resolved.origin[key] = "auto";
  };
  check_heads(family, m);
  resolve(m.kv_heads, "model.kv_heads", [&] { return m.heads; });
  resolve(m.head_dim, "model.head_dim",
          [&] { return family.defaults.head_dim ? family.defaults.head_dim(m) : m.hidden / m.heads; });
  resolve(m.ffn, "model.ffn", [&] { return family.defaults.ffn(m); });
  resolve(m.vocab, "model.vocab", [&] { return base::round_up(data_vocab, 64); });
  resolve(m.context, "model.context", [&] { return recipe.data.seq_len; });
  if (m.vocab.value < data_vocab) {
    throw ConfigError(
        127,
        fmt::format("model.vocab = {} is smaller than the data's {} tokens; raise it, or leave it \"auto\"",
                    m.vocab.value, data_vocab));
  }
  check_sizes(family, recipe);
}

Model build_model(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  const Family& family = find_family(recipe.model.family);
  Model model = family.build(as_read(family, recipe), compute, parts);
  model.family = recipe.model.family;
  if (recipe.tune.method == "lora") add_adapters(model, adapter_options(recipe.tune));
  if (parts.fixes_sequences()) cut_into_pieces(model, parts.pieces_here());
  return model;
}

std::vector<std::string> attention_keys() { return {"model.heads", "model.kv_heads", "model.head_dim"}; }

std::string activation_name(const recipe::Recipe::Model& model) {
  return model.activation == "auto" ? find_family(model.family).defaults.activation : model.activation;
}

kernels::ActivationKind activation_of(const recipe::Recipe::Model& model) {
  const std::optional<kernels::ActivationKind> kind = activation_named(activation_name(model));
  LS_ASSERT(kind.has_value(), "no activation " + model.activation);
  return *kind;
}

}  // namespace lockstep::model
