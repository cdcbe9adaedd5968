#include "lockstep/optim/optimizer.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/registry.h"
#include "lockstep/base/text.h"

namespace lockstep::optim {

namespace {

using Optim = recipe::Recipe::Optim;

OptimizerKind adamw() {
  return {.name = "adamw",
          .describe = "Adam with decoupled weight decay",
          .reads = {"optim.beta1", "optim.beta2", "optim.epsilon"},
          .rule = kernels::UpdateRule::adamw,
          .constants =
              [](const Optim& o) {
                return RuleConstants{o.beta1, o.beta2, o.epsilon};
              },
          .state =
              [](const device::Shape& of) {
                return element_state({"m", "v"}, of);
              }};
}

OptimizerKind sgd() {
  return {.name = "sgd",
          .describe = "stochastic gradient descent with momentum",
          .reads = {"optim.momentum"},
          .rule = kernels::UpdateRule::sgd,
          .constants =
              [](const Optim& o) {
                return RuleConstants{o.momentum, o.beta2, o.epsilon};
              },
          .state = [](const device::Shape& of) { return element_state({"m"}, of); }};
}

OptimizerKind lion() {
  return {.name = "lion",
          .describe = "sign of an exponential moving average",
          .reads = {"optim.beta1", "optim.beta2"},
          .rule = kernels::UpdateRule::lion,
          .constants =
              [](const Optim& o) {
                return RuleConstants{o.beta1, o.beta2, o.epsilon};
              },
          .state = [](const device::Shape& of) { return element_state({"m"}, of); }};
}

base::Registry<OptimizerKind>& registry() {
  static base::Registry<OptimizerKind> all("optimizer", {adamw(), sgd(), lion()});
  return all;
}

// What the step program can carry out yet: updates of chunks, one or two values kept for each element.
void check_is_elementwise(const OptimizerKind& kind) {
  const device::Shape any{3, 5};
  const std::vector<StateTensor> state = kind.state(any);
  LS_ASSERT(!kind.needs_whole && !state.empty() && state.size() <= 2,
            "optimizer " + kind.name + ": the step program updates chunks with one or two moments");
  for (const StateTensor& one : state)
    LS_ASSERT(one.shape == any && one.type == StateTensor::Type::moments,
              "optimizer " + kind.name + ": the step program keeps a moment for each element");
}

}  // namespace

const std::vector<OptimizerKind>& optimizers() { return registry().rows(); }

const OptimizerKind& find_optimizer(const std::string& name) {
  if (const OptimizerKind* kind = registry().find(name)) return *kind;
  throw base::ConfigError(141, fmt::format("unknown optim.name = \"{}\": {}", name,
                                           base::listed(base::names_of(optimizers()), "or")));
}

void register_optimizer(OptimizerKind kind) {
  LS_ASSERT(kind.constants && kind.state, "optimizer " + kind.name + " has no constants or state");
  LS_ASSERT((kind.rule == kernels::UpdateRule::own) == (kind.own != nullptr),
            "optimizer " + kind.name + " has no update rule");
  check_is_elementwise(kind);
  registry().add(std::move(kind));
}

std::vector<StateTensor> element_state(const std::vector<std::string>& names,
                                       const device::Shape& parameter) {
  std::vector<StateTensor> state;
  for (const std::string& name : names) state.push_back({.name = name, .shape = parameter});
  return state;
}

Optimizer make_optimizer(const recipe::Recipe& recipe, bool fp16) {
  const Optim& o = recipe.optim;
  const OptimizerKind& kind = find_optimizer(o.name);
  const RuleConstants constants = kind.constants(o);
  Optimizer optimizer{.rule = kind.rule, .own = kind.own};
  optimizer.moments = static_cast<int>(kind.state({1}).size());
  optimizer.moment_type = o.moments == "bf16" ? device::DType::bf16 : device::DType::f32;
  optimizer.offload = o.offload;
  optimizer.beta1 = static_cast<float>(constants.beta1);
  optimizer.beta2 = static_cast<float>(constants.beta2);
  optimizer.epsilon = static_cast<float>(constants.epsilon);
  optimizer.weight_decay = static_cast<float>(o.weight_decay);
  optimizer.decay_all = o.decay_all;
  optimizer.policy = {.max_norm = static_cast<float>(o.clip),
                      .beta1 = optimizer.beta1,
                      .beta2 = optimizer.beta2,
                      .dynamic_scale = fp16,
                      .stops = recipe.run.nonfinite == "stop",
                      .growth_interval = static_cast<int32_t>(recipe.precision.growth_interval)};
  optimizer.initial_loss_scale = fp16 ? static_cast<float>(recipe.precision.loss_scale) : 1.0f;
  return optimizer;
}

}  // namespace lockstep::optim
