// The table of optimizers: which update rule a recipe asks for, with its constants and what it keeps.
//
// A row holds its rule, the tensors that it keeps for a parameter, and whether it must see a parameter whole.
// Rules of chunks look at one element at a time and are cut anywhere among ranks; rules of whole parameters,
// as Muon is, are called once for each parameter, on the rank of a shard group that holds it, and may keep
// tensors of any shape. A program adds its own before it reads a recipe: register_optimizer(row); then
// optim.name takes its name, and so does `kind` of a parameter group.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/optimizer/optimizer.h"
#include "lockstep/kernels/table.h"
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

// What a rule of whole parameters is called with: device memory, work to be enqueued on `launch`. The
// learning rate and whether the step is applied at all are known to the device only, so what is written to
// `master` and `state` depends on step->apply. Results must not depend on threads or ranks.
struct WholeUpdate {
  device::Tensor master;              // fp32, the parameter's shape
  device::Tensor gradient;            // the same; times step->clip is what counts
  std::vector<device::Tensor> state;  // in the order in which the row names them; zero at first
  device::Tensor scratch;             // as many bytes as the row asks for, aligned
  float rate = 1, weight_decay = 0;   // of this parameter: times inputs->learning_rate
  RuleConstants constants;
  const kernels::StepInputs* inputs = nullptr;
  const kernels::StepState* step = nullptr;
  const kernels::Kernels* kernels = nullptr;
  kernels::Launch launch;
  // What an update may round the operands of its own matrix products to, where it has any.
  device::DType products = device::DType::f32;
};

// A parameter, as far as a row asks.
struct ParamTraits {
  device::Shape shape;  // whole
  bool table = false;   // an embedding or a head: a row for each token or position
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
  // Parameters that an update must see whole, as Muon must a matrix, and not in chunks of 65,536 elements:
  // `whole` is called with them. Null: none.
  std::function<bool(const device::Shape& parameter)> needs_whole = {};
  std::function<void(const WholeUpdate&)> whole = {};
  std::function<int64_t(const device::Shape& parameter, const kernels::Kernels&)> scratch = {};  // bytes
  bool whole_on_gpu = false;  // `whole` touches memory through kernels only
  // Parameters that it is for; the others get the optimizer `rest`. Null: it is for all.
  std::function<bool(const ParamTraits&)> takes = {};
  std::string rest = {};
};

const std::vector<OptimizerKind>& optimizers();
const OptimizerKind& find_optimizer(const std::string& name);  // ConfigError 141
// Before the first recipe is read (base/registry.h).
void register_optimizer(OptimizerKind kind);

// For OptimizerKind::state: tensors of the parameter's own shape, by these names.
std::vector<StateTensor> element_state(const std::vector<std::string>& names, const device::Shape& parameter);

// One of the rules that a recipe asks for.
struct Rule {
  const OptimizerKind* kind = nullptr;  // a row of optimizers()
  float beta1 = 0, beta2 = 0, epsilon = 0;
  RuleConstants constants;
};

// What a recipe asks for.
struct Optimizer {
  std::vector<Rule> rules;  // optim.name's first, then those of groups and what they leave to others
  device::DType moment_type = device::DType::f32;
  bool offload = false;  // moments live in the host's pinned memory
  float weight_decay = 0;
  bool decay_all = false;
  kernels::NormPolicy policy;  // clipping and the loss scaler
  float initial_loss_scale = 1;
  bool keeps_state() const;
  // Which rule is for a parameter, where its group asks for this kind; empty: the first.
  int rule_for(const std::string& kind, const ParamTraits& parameter) const;
};

// `fp16`: gradients are scaled, and steps with gradients that are not finite are skipped.
Optimizer make_optimizer(const recipe::Recipe& recipe, bool fp16);

}  // namespace lockstep::optim
