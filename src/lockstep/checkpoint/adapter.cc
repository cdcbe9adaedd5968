#include "lockstep/checkpoint/adapter.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/formats/strict_json.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kEnds[] = {".lora_A.weight", ".lora_B.weight"};
constexpr int64_t kMostRank = 65536;
constexpr double kMostAlpha = 1e6;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw CheckpointError(340, fmt::format("{}: {}", path, why));
}

// What PEFT can do beyond A and B, and a plain adapter has not set.
void refuse_more(const Json& json, const std::string& path) {
  const auto is_set = [&](const char* key) {
    if (!json.contains(key)) return false;
    const Json& value = json[key];
    return !value.is_null() && value != false && !(value.is_structured() && value.empty());
  };
  for (const char* key : {"use_dora", "use_qalora", "rank_pattern", "alpha_pattern", "lora_bias",
                          "layer_replication", "megatron_config", "target_parameters",
                          "trainable_token_indices", "corda_config", "alora_invocation_tokens"}) {
    if (is_set(key))
      refuse(path, fmt::format("it sets {}, which is not supported; train an adapter without it, or merge it "
                               "into the model with PEFT",
                               key));
  }
  // These cut the adapter's first values out of the base model's weights: it belongs to what is left of them.
  const Json start = json.value("init_lora_weights", Json(true));
  for (const std::string_view kind : {"pissa", "olora", "corda", "loftq", "lora_ga"}) {
    if (start.is_string() && start.get_ref<const std::string&>().starts_with(kind))
      refuse(
          path,
          fmt::format(
              "it was begun with init_lora_weights = {}, which changes the base model's weights too; save "
              "it with PEFT's path_initial_model_for_weight_conversion, or merge it into the model with PEFT",
              base::quoted(start.get<std::string>())));
  }
  if (json.contains("bias") && json["bias"].is_string() && json["bias"] != "none")
    refuse(path, fmt::format("it trained biases (bias = {}), which is not supported; merge it into the model "
                             "with PEFT",
                             base::quoted(json["bias"].get<std::string>())));
}

std::vector<std::string> names_in(const Json& json, const char* key) {
  std::vector<std::string> names;
  if (!json.contains(key) || !json[key].is_array()) return names;
  for (const Json& one : json[key]) {
    if (one.is_string()) names.push_back(one.get<std::string>());
  }
  return names;
}

double number_in(const Json& json, const char* key, double usual, const std::string& path) {
  if (!json.contains(key) || json[key].is_null()) return usual;
  if (!json[key].is_number()) refuse(path, fmt::format("\"{}\" is not a number", key));
  const double value = json[key].get<double>();
  if (!std::isfinite(value)) refuse(path, fmt::format("\"{}\" is not finite", key));
  return value;
}

bool truth_in(const Json& json, const char* key, const std::string& path) {
  if (!json.contains(key) || json[key].is_null()) return false;
  if (!json[key].is_boolean()) refuse(path, fmt::format("\"{}\" is neither true nor false", key));
  return json[key].get<bool>();
}

void drop_part(std::string& name, std::string_view part) {
  if (const size_t at = name.find(part); at != std::string::npos) name.erase(at, part.size());
}

}  // namespace

double AdapterConfig::scale() const {
  const auto by = static_cast<double>(rank);
  return alpha / (root ? std::sqrt(by) : by);
}

std::string adapter_config_text(const AdapterConfig& c) {
  const auto or_null = [](const auto& value) { return value.empty() ? Json(nullptr) : Json(value); };
  Json json = {{"peft_type", "LORA"},
               {"task_type", "CAUSAL_LM"},
               {"base_model_name_or_path", or_null(c.base)},
               {"r", c.rank},
               {"lora_alpha", c.alpha},
               {"lora_dropout", c.dropout},
               {"use_rslora", c.root},
               {"fan_in_fan_out", c.transposed},
               {"target_modules", c.targets},
               {"modules_to_save", or_null(c.modules)},
               {"bias", "none"},
               {"inference_mode", true},
               {"init_lora_weights", true},
               {"use_dora", false},
               {"rank_pattern", Json::object()},
               {"alpha_pattern", Json::object()},
               {"layers_to_transform", nullptr},
               {"layers_pattern", nullptr},
               {"auto_mapping", nullptr},
               {"revision", nullptr}};
  if (c.alpha == std::floor(c.alpha)) json["lora_alpha"] = static_cast<int64_t>(c.alpha);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

AdapterConfig parse_adapter_config(const std::string& text, const std::string& path) {
  const Json json = parse_strict(text, 340, path);
  if (!json.is_object()) refuse(path, "it is not a JSON object");
  const Json type = json.value("peft_type", Json("LORA"));
  if (type != "LORA") refuse(path, fmt::format("peft_type is {}; only LORA is supported", type.dump()));
  refuse_more(json, path);
  AdapterConfig config;
  if (json.contains("base_model_name_or_path") && json["base_model_name_or_path"].is_string())
    config.base = json["base_model_name_or_path"].get<std::string>();
  const double rank = number_in(json, "r", 8, path);
  if (rank != std::floor(rank) || rank < 1 || rank > kMostRank)
    refuse(path, fmt::format("\"r\" is {}; expected an integer from 1 to {}", rank, kMostRank));
  config.rank = static_cast<int64_t>(rank);
  config.alpha = number_in(json, "lora_alpha", 8, path);
  if (config.alpha <= 0 || config.alpha > kMostAlpha)
    refuse(path, fmt::format("\"lora_alpha\" is {}; expected a number above 0, at most {}", config.alpha,
                             kMostAlpha));
  config.dropout = number_in(json, "lora_dropout", 0, path);
  config.root = truth_in(json, "use_rslora", path);
  config.transposed = truth_in(json, "fan_in_fan_out", path);
  config.targets = names_in(json, "target_modules");
  config.modules = names_in(json, "modules_to_save");
  return config;
}

std::string peft_name(const std::string& name) { return std::string(kPrefix) + name; }

// Some versions leave in what PEFT puts around a module.
std::string plain_name(const std::string& peft) {
  std::string name = peft.starts_with(kPrefix) ? peft.substr(kPrefix.size()) : peft;
  for (const std::string_view part : {".modules_to_save.default", ".modules_to_save", ".base_layer"})
    drop_part(name, part);
  for (const std::string_view matrix : {".lora_A", ".lora_B"}) {
    const std::string named = std::string(matrix) + ".default.weight";
    if (name.ends_with(named))
      name = name.substr(0, name.size() - named.size()) + std::string(matrix) + ".weight";
  }
  return name;
}

bool is_adapter_tensor(const std::string& name) {
  return name.ends_with(kEnds[0]) || name.ends_with(kEnds[1]);
}

std::string adapted_weight(const std::string& name) {
  return name.substr(0, name.size() - kEnds[0].size()) + ".weight";
}

}  // namespace lockstep::checkpoint
