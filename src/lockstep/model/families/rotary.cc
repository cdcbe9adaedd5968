#include "lockstep/model/families/rotary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/model/families/huggingface_config.h"

namespace lockstep::model {

namespace {

using base::ConfigError;
using ModelKeys = recipe::Recipe::Model;

// One factor for each rotation of a head.
void check_factors(const ModelKeys& m, const char* key, const std::string& text) {
  const size_t wanted = static_cast<size_t>(rotary_dim(m) / 2), given = rope_factors(text).size();
  if (given == wanted) return;
  throw ConfigError(128,
                    fmt::format("model.rope_type = \"longrope\" needs {} numbers above 0 in {}, one for each "
                                "rotation of a head of {} (model.head_dim), and there are {}",
                                wanted, key, rotary_dim(m), given));
}

void check_stretching(const ModelKeys& m) {
  if (m.rope_type == "dynamic" && rotary_dim(m) <= 2) {
    throw ConfigError(
        128, fmt::format("model.rope_type = \"dynamic\" needs heads wider than 2, and model.head_dim "
                         "= {}: use fewer heads, or rope_type=linear",
                         m.head_dim.value));
  }
  if (m.rope_type != "longrope") return;
  check_factors(m, "model.rope_short_factor", m.rope_short_factor);
  check_factors(m, "model.rope_long_factor", m.rope_long_factor);
  if (m.rope_original_context < 2) {
    throw ConfigError(128, "model.rope_original_context = 1: longrope needs a context of at least 2 tokens");
  }
}

nlohmann::json rope_scaling(const ModelKeys& m) {
  nlohmann::json r = {{"rope_type", m.rope_type}, {"factor", m.rope_scaling}};
  if (m.rope_type == "linear" || m.rope_type == "dynamic") return r;
  r["original_max_position_embeddings"] = m.rope_original_context;
  if (m.rope_attention > 0 && m.rope_type != "llama3") r["attention_factor"] = m.rope_attention;
  if (m.rope_type == "longrope") {
    r["short_factor"] = rope_factors(m.rope_short_factor);
    r["long_factor"] = rope_factors(m.rope_long_factor);
    return r;
  }
  const bool yarn = m.rope_type == "yarn";
  r[yarn ? "beta_slow" : "low_freq_factor"] = m.rope_low_freq;
  r[yarn ? "beta_fast" : "high_freq_factor"] = m.rope_high_freq;
  if (yarn && !m.rope_whole_limits) r["truncate"] = false;
  return r;
}

// What YaRN multiplies cosines and sines with, where it is not the usual.
double yarn_attention(const ConfigReader& rope, double factor) {
  if (rope.has("attention_factor")) return rope.number("attention_factor");
  if (!rope.has("mscale") || !rope.has("mscale_all_dim")) return 0;
  const auto part = [&](const char* key) {
    return factor > 1 ? 1 + 0.1 * rope.number(key) * std::log(factor) : 1;
  };
  return part("mscale") / part("mscale_all_dim");
}

void read_yarn(const ConfigReader& rope, double stretch, ConfigSettings& settings) {
  const double factor = rope.number("factor", stretch);
  settings.push_back({"model.rope_scaling", toml(factor)});
  settings.push_back({"model.rope_low_freq", toml(rope.number("beta_slow", 1))});
  settings.push_back({"model.rope_high_freq", toml(rope.number("beta_fast", 32))});
  settings.push_back({"model.rope_attention", toml(yarn_attention(rope, factor))});
  if (!rope.truth("truncate", true)) settings.push_back({"model.rope_whole_limits", "false"});
}

void read_longrope(const ConfigReader& rope, double stretch, ConfigSettings& settings) {
  settings.push_back({"model.rope_scaling", toml(rope.number("factor", stretch))});
  settings.push_back({"model.rope_short_factor", toml(rope.numbers("short_factor"))});
  settings.push_back({"model.rope_long_factor", toml(rope.numbers("long_factor"))});
  settings.push_back({"model.rope_attention", toml(rope.number("attention_factor", 0))});
}

}  // namespace

std::vector<std::string> rotary_keys() {
  return {"model.rope_theta",      "model.rope_scaling",          "model.rope_type",
          "model.rope_low_freq",   "model.rope_high_freq",        "model.rope_whole_limits",
          "model.rope_attention",  "model.rope_original_context", "model.rope_short_factor",
          "model.rope_long_factor"};
}

int64_t rotary_dim(const ModelKeys& m) {
  return static_cast<int64_t>(static_cast<double>(m.head_dim.value) * m.partial_rotary);
}

RopeOptions rope_options(const ModelKeys& m) {
  return {.heads = m.heads,
          .kv_heads = m.kv_heads.value,
          .head_dim = m.head_dim.value,
          .positions = m.context.value,
          .theta = m.rope_theta,
          .scaling = m.rope_scaling,
          .type = m.rope_type,
          .low_freq = m.rope_low_freq,
          .high_freq = m.rope_high_freq,
          .whole_limits = m.rope_whole_limits,
          .original_context = m.rope_original_context,
          .attention = m.rope_attention,
          .short_factors = rope_factors(m.rope_short_factor),
          .long_factors = rope_factors(m.rope_long_factor),
          .rotary_dim = rotary_dim(m)};
}

void check_rotary(const ModelKeys& m) {
  if (m.partial_rotary < 1 && (rotary_dim(m) % 2 != 0 || rotary_dim(m) == 0)) {
    throw ConfigError(124,
                      fmt::format("model.partial_rotary = {} of model.head_dim = {} is {} columns: rotary "
                                  "embedding needs an even number of them, at least 2",
                                  m.partial_rotary, m.head_dim.value, rotary_dim(m)));
  }
  if (m.partial_rotary == 1 && m.head_dim.value % 2 != 0) {
    throw ConfigError(124, fmt::format("rotary embedding needs an even head width, but model.head_dim = {}{}",
                                       m.head_dim.value,
                                       m.head_dim.value * m.heads == m.hidden ? " (hidden / heads)" : ""));
  }
  if (m.rope_scaling > 0) check_stretching(m);
  if (m.rope_scaling > 0 && m.rope_type == "yarn" && m.rope_theta <= 1) {
    throw ConfigError(124, fmt::format("model.rope_theta = {}: yarn distinguishes slow from fast rotations, "
                                       "but there are none; set it above 1, such as 10000",
                                       m.rope_theta));
  }
}

// Where both stand, transformers goes by rope_scaling.
void read_rotary(const ConfigReader& c, int64_t context, ConfigSettings& settings,
                 const RotaryDefaults& usual) {
  read_rotary(c.part(c.holds_something("rope_scaling") ? "rope_scaling" : "rope_parameters"), c, context,
              settings, usual);
}

void read_rotary(const ConfigReader& rope, const ConfigReader& c, int64_t context, ConfigSettings& settings,
                 const RotaryDefaults& usual) {
  settings.push_back(
      {"model.rope_theta", toml(rope.number("rope_theta", c.number(usual.theta_key, usual.theta)))});
  const double partial =
      rope.number("partial_rotary_factor", c.number(usual.partial_key, usual.partial.value_or(1)));
  if (!usual.partial && partial != 1) c.refuse("partial_rotary_factor is not 1");
  if (usual.partial) settings.push_back({"model.partial_rotary", toml(partial)});
  std::string type = rope.text("rope_type", rope.text("type", "default"));
  for (const auto& [older, name] : usual.renamed) {
    if (type == older) type = name;
  }
  if (type == "default") {
    settings.push_back({"model.rope_scaling", "0.0"});
    return;
  }
  const std::vector<std::string>& known = recipe::find_key("model.rope_type")->choices;
  if (std::find(known.begin(), known.end(), type) == known.end()) {
    c.refuse(fmt::format("RoPE scaling of type {} is not supported; supported are {}", base::quoted(type),
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
  const int64_t original = c.size(key, rope.size(key, usual.original > 0 ? usual.original : context));
  settings.push_back({"model.rope_original_context", toml(original)});
  const double stretch = static_cast<double>(context) / static_cast<double>(original);
  if (type == "yarn") return read_yarn(rope, stretch, settings);
  if (type == "longrope") return read_longrope(rope, stretch, settings);
  settings.push_back({"model.rope_scaling", toml(rope.number("factor"))});
  settings.push_back({"model.rope_low_freq", toml(rope.number("low_freq_factor"))});
  settings.push_back({"model.rope_high_freq", toml(rope.number("high_freq_factor"))});
}

int64_t written_positions(const ModelKeys& m) {
  return m.rope_scaling > 0 && m.rope_type == "dynamic" ? m.rope_original_context : m.context.value;
}

void write_rotary(const ModelKeys& m, ConfigWriter& c) {
  c["rope_theta"] = m.rope_theta;
  if (m.rope_scaling > 0) c["rope_scaling"] = rope_scaling(m);
}

}  // namespace lockstep::model
