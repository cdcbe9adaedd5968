#include "lockstep/optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/registry.h"
#include "lockstep/base/text.h"
#include "lockstep/optim/rows.h"
#include "lockstep/recipe/groups.h"

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
  static base::Registry<OptimizerKind> all("optimizer", {adamw(), sgd(), lion(), muon()});
  return all;
}

// A rule of chunks keeps a value for each element, so that what it keeps is cut with the parameter.
void check_state(const OptimizerKind& kind) {
  for (const device::Shape& any : {device::Shape{7}, device::Shape{3, 5}}) {
    if (kind.needs_whole && kind.needs_whole(any)) {
      LS_ASSERT(kind.whole != nullptr, "optimizer " + kind.name + " lacks its rule for whole parameters");
      continue;
    }
    if (kind.takes && !kind.takes({.shape = any})) continue;
    LS_ASSERT((kind.rule == kernels::UpdateRule::own) == (kind.own != nullptr),
              "optimizer " + kind.name + " lacks its rule");
    const std::vector<StateTensor> state = kind.state(any);
    LS_ASSERT(state.size() <= kernels::kMostState,
              fmt::format("optimizer {}: a rule of chunks keeps at most {} tensors", kind.name,
                          kernels::kMostState));
    for (const StateTensor& one : state)
      LS_ASSERT(one.shape == any, "optimizer " + kind.name +
                                      ": a rule of chunks keeps a value for each element; one that keeps "
                                      "other shapes needs parameters whole");
  }
}

void add_rule(std::vector<Rule>& rules, const Optim& o, const std::string& name) {
  const OptimizerKind& kind = find_optimizer(name);
  for (const Rule& one : rules) {
    if (one.kind == &kind) return;
  }
  const RuleConstants c = kind.constants(o);
  rules.push_back({.kind = &kind,
                   .beta1 = static_cast<float>(c.beta1),
                   .beta2 = static_cast<float>(c.beta2),
                   .epsilon = static_cast<float>(c.epsilon),
                   .constants = c});
}

}  // namespace

const std::vector<OptimizerKind>& optimizers() { return registry().rows(); }

const OptimizerKind& find_optimizer(const std::string& name) {
  if (const OptimizerKind* kind = registry().find(name)) return *kind;
  throw base::ConfigError(141, fmt::format("unknown optim.name = \"{}\": {}", name,
                                           base::listed(base::names_of(optimizers()), "or")));
}

void register_optimizer(OptimizerKind kind) {
  LS_ASSERT(kind.constants && kind.state, "optimizer " + kind.name + " lacks constants or state");
  check_state(kind);
  registry().add(std::move(kind));
}

std::vector<StateTensor> element_state(const std::vector<std::string>& names,
                                       const device::Shape& parameter) {
  std::vector<StateTensor> state;
  for (const std::string& name : names) state.push_back({.name = name, .shape = parameter});
  return state;
}

bool Optimizer::keeps_state() const {
  return std::any_of(rules.begin(), rules.end(),
                     [](const Rule& rule) { return !rule.kind->state({1}).empty(); });
}

int Optimizer::rule_for(const std::string& kind, const ParamTraits& parameter) const {
  std::string name = kind.empty() ? rules[0].kind->name : kind;
  for (size_t hops = 0; hops <= rules.size(); ++hops) {
    const auto it =
        std::find_if(rules.begin(), rules.end(), [&](const Rule& rule) { return rule.kind->name == name; });
    LS_ASSERT(it != rules.end(), "no rule " + name);
    if (!it->kind->takes || it->kind->takes(parameter)) return static_cast<int>(it - rules.begin());
    name = it->kind->rest;
  }
  LS_ASSERT(false, "optimizers leave parameters to each other");
  return 0;
}

namespace {

std::vector<Rule> rules_of(const Optim& o) {
  std::vector<Rule> rules;
  add_rule(rules, o, o.name);
  for (const recipe::ParamGroup& group : recipe::read_groups(o.groups)) {
    if (group.kind.empty()) continue;
    if (registry().find(group.kind) == nullptr)
      throw base::ConfigError(
          141, fmt::format("optim.groups: kind={} of \"{}\" is not an optimizer: {}", group.kind, group.match,
                           base::listed(base::names_of(optimizers()), "or")));
    add_rule(rules, o, group.kind);
  }
  for (size_t k = 0; k < rules.size(); ++k) {
    if (!rules[k].kind->rest.empty()) add_rule(rules, o, rules[k].kind->rest);
  }
  return rules;
}

// The one whose moments the step's bias corrections are of: Adam's, where it is among them.
const Rule& corrected(const std::vector<Rule>& rules) {
  for (const Rule& rule : rules) {
    if (rule.kind->rule == kernels::UpdateRule::adamw) return rule;
  }
  return rules[0];
}

}  // namespace

Optimizer make_optimizer(const recipe::Recipe& recipe, bool fp16) {
  const Optim& o = recipe.optim;
  Optimizer optimizer{.rules = rules_of(o)};
  optimizer.moment_type = o.moments == "bf16" ? device::DType::bf16 : device::DType::f32;
  optimizer.offload = o.offload;
  optimizer.weight_decay = static_cast<float>(o.weight_decay);
  optimizer.decay_all = o.decay_all;
  optimizer.policy = {.max_norm = static_cast<float>(o.clip),
                      .beta1 = corrected(optimizer.rules).beta1,
                      .beta2 = corrected(optimizer.rules).beta2,
                      .dynamic_scale = fp16,
                      .stops = recipe.run.nonfinite == "stop",
                      .growth_interval = static_cast<int32_t>(recipe.precision.growth_interval)};
  optimizer.initial_loss_scale = fp16 ? static_cast<float>(recipe.precision.loss_scale) : 1.0f;
  return optimizer;
}

}  // namespace lockstep::optim
