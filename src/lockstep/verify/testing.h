// Runs that were never trained: folders with metrics and checkpoints whose every value follows from a rule,
// to be spoilt on purpose.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/step_folders.h"
#include "lockstep/checkpoint/testing.h"
#include "lockstep/verify/compare.h"

namespace lockstep::verify {

using Values = std::vector<float>;

struct Forged {
  int64_t first = 1, last = 2;  // steps
  double loss = 2.5;
  std::function<void(const std::string& name, Values& gradient)> spoil = {};  // step 1, before clipping
  std::function<void(const std::string& name, Values& weights, int64_t step)> spoil_weights = {};
};

inline Values values_for(const std::string& name, int64_t step) {
  Values values(64);
  const size_t seed = std::hash<std::string>()(name) % 1000;
  for (size_t k = 0; k < values.size(); ++k)
    values[k] = std::sin(static_cast<float>(seed + 7 * k) + static_cast<float>(step));
  return values;
}

// The folder of a run over these blocks, as training would leave it.
inline void forge_run(const std::string& folder, const std::vector<BlockNames>& blocks,
                      const recipe::Recipe& recipe, const Forged& forged) {
  base::make_folders(folder);
  std::map<std::string, Values> gradients;
  double squares = 0;
  for (const BlockNames& block : blocks) {
    for (const std::string& name : block.params) {
      Values& values = gradients[name] = values_for(name, 0);
      if (forged.spoil) forged.spoil(name, values);
      for (const float value : values) squares += static_cast<double>(value) * value;
    }
  }
  const double norm = std::sqrt(squares), clip = recipe.optim.clip;
  const double scale = (1 - recipe.optim.beta1) * (clip > 0 && norm > clip ? clip / norm : 1);
  base::LineWriter metrics(folder + "/metrics.jsonl");
  for (int64_t step = forged.first; step <= forged.last; ++step) {
    const double loss = forged.loss / static_cast<double>(step);
    metrics.write(fmt::format(R"({{"step":{},"loss":{},"loss_hex":"{:a}","grad_norm":{},"mem_gib":0.5}})",
                              step, loss, loss, std::isfinite(norm) ? fmt::to_string(norm) : "\"nan\""));
    std::vector<checkpoint::HostTensor> model, optimizer;
    std::map<std::string, Values> weights, moments;
    for (auto& [name, gradient] : gradients) {
      weights[name] = values_for(name, 100 + step);
      if (forged.spoil_weights) forged.spoil_weights(name, weights[name], step);
      moments[name] = step == 1 ? gradient : values_for(name, step);
      for (float& value : moments[name]) value = static_cast<float>(value * scale);
      model.push_back({name, {weights[name].data(), device::DType::f32, {64}}});
      optimizer.push_back({name + ".m", {moments[name].data(), device::DType::f32, {64}}});
    }
    const std::string place = checkpoint::step_folder(folder, step);
    base::make_folders(place);
    checkpoint::write_safetensors(place + "/model-00001-of-00001.safetensors", model, {});
    checkpoint::write_safetensors(place + "/optimizer-00001-of-00001.safetensors", optimizer, {});
  }
  base::write_file_durable(folder + "/config.toml", recipe::write_toml(recipe));
}

}  // namespace lockstep::verify
