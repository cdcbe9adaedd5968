// The table of optimizers: which update rule a recipe asks for, with its constants and what it keeps.
//
// A row holds its rule, the tensors that it keeps for a parameter, and whether it must see a parameter whole.
// A program adds its own before it reads a recipe: register_optimizer(row); then optim.name takes its name.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/kernels/optimizer/optimizer.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::optim {

// One tensor that an optimizer keeps for a parameter.
struct StateTensor {
  enum class Type : uint8_t { moments, f32 };  // as optim.moments says, or always fp32
  std::string name;                            // in checkpoints: "m" of "lm_head.weight.m"
  device::Shape
      shape;  // the parameter's own, where there is a value for each element: then it is cut with it
  Type type = Type::moments;
};

// The numbers of the rule.
struct RuleConstants {
  double beta1 = 0, beta2 = 0, epsilon = 0;
};

struct OptimizerKind {
  std::string name;
  std::string describe;                 // one line
  std::vector<std::string> reads = {};  // keys of [optim] that count for this optimizer and not for all
  kernels::UpdateRule rule = kernels::UpdateRule::own;
  kernels::OwnRule own = nullptr;  // where the rule is a program's own: element by element, on the CPU
  std::function<RuleConstants(const recipe::Recipe::Optim&)> constants;
  // What it keeps for a parameter of this shape, in the order of the rule's arguments.
  std::function<std::vector<StateTensor>(const device::Shape& parameter)> state;
  // Parameters that an update must see whole, as Muon must a matrix, and not in chunks of 65,536 elements.
  // Null: none.
  std::function<bool(const device::Shape& parameter)> needs_whole = {};
};

const std::vector<OptimizerKind>& optimizers();
const OptimizerKind& find_optimizer(const std::string& name);  // ConfigError 141
// Before the first recipe is read (base/registry.h).
void register_optimizer(OptimizerKind kind);

// For OptimizerKind::state: tensors of the parameter's own shape, by these names.
std::vector<StateTensor> element_state(const std::vector<std::string>& names, const device::Shape& parameter);

// What a recipe asks for.
struct Optimizer {
  kernels::UpdateRule rule = kernels::UpdateRule::adamw;
  kernels::OwnRule own = nullptr;
  int moments = 2;
  device::DType moment_type = device::DType::f32;
  bool offload = false;  // moments live in the host's pinned memory
  float beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  bool decay_all = false;
  kernels::NormPolicy policy;  // clipping and the loss scaler
  float initial_loss_scale = 1;
};

// `fp16`: gradients are scaled, and steps with gradients that are not finite are skipped.
Optimizer make_optimizer(const recipe::Recipe& recipe, bool fp16);

}  // namespace lockstep::optim
