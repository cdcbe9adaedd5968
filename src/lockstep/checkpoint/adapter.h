// PEFT's files of an adapter: adapter_config.json and adapter_model.safetensors.
//
// The tensors are called base_model.model.MAP.lora_A.weight and so on; here they go without that prefix.
// Weights that were trained beside the adapters (modules_to_save) lie among them under their own names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

constexpr const char* kAdapterName = "adapter_model.safetensors";
constexpr const char* kAdapterPytorchName = "adapter_model.bin";
constexpr const char* kAdapterConfigName = "adapter_config.json";

struct AdapterConfig {
  std::string base;  // base_model_name_or_path; empty: it names none
  int64_t rank = 8;
  double alpha = 16, dropout = 0;
  bool root = false;                      // use_rslora: alpha is divided by the root of the rank
  bool transposed = false;                // fan_in_fan_out: the base's weights are [in, out], as GPT-2's are
  std::vector<std::string> targets = {};  // target_modules; only written: the tensors say it
  std::vector<std::string> modules = {};  // modules_to_save; the same
  double scale() const;
};

std::string adapter_config_text(const AdapterConfig& config);
// CheckpointError 340 for what is no LoRA adapter, or one that is more than A and B (DoRA, ranks of layers).
AdapterConfig parse_adapter_config(const std::string& text, const std::string& path);

// base_model.model.model.layers.0.mlp.up_proj.lora_A.weight to and from our name.
std::string peft_name(const std::string& name);
std::string plain_name(const std::string& peft);

bool is_adapter_tensor(const std::string& name);      // ours: ends with .lora_A.weight or .lora_B.weight
std::string adapted_weight(const std::string& name);  // MAP.lora_A.weight to MAP.weight

}  // namespace lockstep::checkpoint
