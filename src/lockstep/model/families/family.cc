#include "lockstep/model/families/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/model/segments/rope.h"

namespace lockstep::model {

namespace {

using base::ConfigError;

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

std::string names_of(const std::vector<Preset>& presets) {
  std::string names;
  for (const Preset& preset : presets) names += (names.empty() ? "" : ", ") + preset.name;
  return names.empty() ? "none" : names;
}

// A preset fills what the user left alone: keys that are not on the command line and still have their default
// value. (A file from `lockstep init` names every key; naming a preset in it must be enough.)
bool left_alone(const recipe::Resolved& resolved, const std::string& name) {
  const std::string& origin = resolved.origin.at(name);
  const recipe::Key* key = recipe::find_key(name);
  return origin == "default" || (origin != "command line" &&
                                 recipe::value_text(*key, resolved.recipe) == recipe::default_text(*key));
}

}  // namespace

void apply_preset(recipe::Resolved& resolved) {
  const std::string& wish = resolved.recipe.model.preset;
  if (wish.empty()) return;
  const Family& family = find_family(resolved.recipe.model.family);
  const auto preset = std::find_if(family.presets.begin(), family.presets.end(),
                                   [&](const Preset& p) { return p.name == wish; });
  if (preset == family.presets.end()) {
    throw ConfigError(121, fmt::format("model.preset = \"{}\" is not a preset of family {}; it has: {}", wish,
                                       family.name, names_of(family.presets)));
  }
  for (const auto& [name, value] : preset->keys) {
    if (!left_alone(resolved, name)) continue;
    recipe::set_value(resolved.recipe, name, value);
    resolved.origin[name] = "preset " + wish;
  }
}

namespace {

void check_heads(const recipe::Recipe::Model& m) {
  if (m.hidden % m.heads != 0) {  // with a head_dim of one's own too: transformers opens no such model
    throw ConfigError(
        122, fmt::format("model.heads = {} does not divide model.hidden = {}; heads that do: {}", m.heads,
                         m.hidden, base::divisors_near(m.hidden, m.heads)));
  }
  if (!m.head_dim.is_auto && m.family != "llama" && m.head_dim.value * m.heads != m.hidden) {
    throw ConfigError(124, fmt::format("model.head_dim = {}: the heads of a {} share model.hidden = {}; "
                                       "leave it \"auto\", or set model.family=llama",
                                       m.head_dim.value, m.family, m.hidden));
  }
}

// One factor for each rotation of a head.
void check_factors(const recipe::Recipe::Model& m, const char* key, const std::string& text) {
  const size_t wanted = static_cast<size_t>(m.head_dim.value / 2), given = rope_factors(text).size();
  if (given == wanted) return;
  throw ConfigError(128,
                    fmt::format("model.rope_type = \"longrope\" needs {} numbers above 0 in {}, one for each "
                                "rotation of a head of {} (model.head_dim), and there are {}",
                                wanted, key, m.head_dim.value, given));
}

void check_rope(const recipe::Recipe::Model& m) {
  if (m.rope_type == "dynamic" && m.head_dim.value <= 2) {
    throw ConfigError(
        128, fmt::format("model.rope_type = \"dynamic\" needs heads wider than 2, and model.head_dim "
                         "= {}: use fewer heads, or rope_type=linear",
                         m.head_dim.value));
  }
  if (m.rope_type != "longrope") return;
  check_factors(m, "model.rope_short_factor", m.rope_short_factor);
  check_factors(m, "model.rope_long_factor", m.rope_long_factor);
  if (m.rope_original_context < 2) {
    throw ConfigError(128,
                      "model.rope_original_context = 1: longrope stretches a context of at least 2 tokens");
  }
}

void check_sizes(const recipe::Recipe& recipe) {
  const auto& m = recipe.model;
  if (m.heads % m.kv_heads.value != 0) {
    throw ConfigError(
        123, fmt::format("model.kv_heads = {} does not divide model.heads = {}; try {}", m.kv_heads.value,
                         m.heads, base::divisors_near(m.heads, m.kv_heads.value)));
  }
  if (m.family == "gpt2" && m.kv_heads.value != m.heads) {
    throw ConfigError(123, fmt::format("model.kv_heads = {}: a gpt2 has keys and values for each of its {} "
                                       "heads; leave it out, or set model.family=llama",
                                       m.kv_heads.value, m.heads));
  }
  if (m.family == "llama" && m.head_dim.value % 2 != 0) {
    throw ConfigError(124, fmt::format("rotary embedding needs an even head width, but model.head_dim = {}{}",
                                       m.head_dim.value,
                                       m.head_dim.value * m.heads == m.hidden ? " (hidden / heads)" : ""));
  }
  if (m.family == "llama" && m.rope_scaling > 0) check_rope(m);
  if (m.family == "llama" && m.rope_scaling > 0 && m.rope_type == "yarn" && m.rope_theta <= 1) {
    throw ConfigError(124, fmt::format("model.rope_theta = {}: yarn tells slow rotations from fast ones, and "
                                       "there are none; set it above 1, such as 10000",
                                       m.rope_theta));
  }
  if (m.head_dim.value > 256) {
    throw ConfigError(125, fmt::format("model.head_dim = {}: heads wider than 256 are not supported; use "
                                       "more heads",
                                       m.head_dim.value));
  }
  if (m.context.value < recipe.data.seq_len) {
    throw ConfigError(
        126, fmt::format("data.seq_len = {} is longer than model.context = {}: raise model.context or "
                         "shorten data.seq_len",
                         recipe.data.seq_len, m.context.value));
  }
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = {gpt2_family(), llama_family(), mlp_family()};
  return all;
}

const Family& find_family(const std::string& name) {
  for (const Family& family : families()) {
    if (family.name == name) return family;
  }
  throw ConfigError(120,
                    fmt::format("model.family = \"{}\" is not known; there are: gpt2, llama, mlp", name));
}

void resolve_model(recipe::Resolved& resolved, int64_t data_vocab) {
  const Family& family = find_family(resolved.recipe.model.family);
  apply_preset(resolved);
  recipe::Recipe& recipe = resolved.recipe;
  auto& m = recipe.model;
  const auto settle = [&](recipe::AutoInt& value, const char* key, int64_t n) {
    if (!value.is_auto) return;
    value = n;
    resolved.origin[key] = "auto";
  };
  check_heads(m);
  settle(m.kv_heads, "model.kv_heads", m.heads);
  settle(m.head_dim, "model.head_dim", m.hidden / m.heads);
  settle(m.ffn, "model.ffn", family.name == "llama" ? round_up(m.hidden * 8 / 3, 64) : 4 * m.hidden);
  settle(m.vocab, "model.vocab", round_up(data_vocab, 64));
  settle(m.context, "model.context", recipe.data.seq_len);
  if (m.vocab.value < data_vocab) {
    throw ConfigError(
        127,
        fmt::format("model.vocab = {} is smaller than the data's {} tokens: raise it, or leave it \"auto\"",
                    m.vocab.value, data_vocab));
  }
  check_sizes(recipe);
}

Model build_model(const recipe::Recipe& recipe, DType compute, const Parts& parts) {
  return find_family(recipe.model.family).build(recipe, compute, parts);
}

}  // namespace lockstep::model
