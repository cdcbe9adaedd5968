#include "lockstep/optim/optimizer.h"

#include "lockstep/base/error.h"

namespace lockstep::optim {

namespace {

struct Row {
  const char* name;
  kernels::UpdateRule rule;
  int moments;
};
constexpr Row kOptimizers[] = {{"adamw", kernels::UpdateRule::adamw, 2},
                               {"sgd", kernels::UpdateRule::sgd, 1},
                               {"lion", kernels::UpdateRule::lion, 1}};

}  // namespace

Optimizer make_optimizer(const recipe::Recipe& recipe, bool fp16) {
  const auto& o = recipe.optim;
  for (const Row& row : kOptimizers) {
    if (o.name != row.name) continue;
    Optimizer optimizer{.rule = row.rule, .moments = row.moments};
    optimizer.moment_type = o.moments == "bf16" ? device::DType::bf16 : device::DType::f32;
    optimizer.offload = o.offload;
    const bool sgd = row.rule == kernels::UpdateRule::sgd;
    optimizer.beta1 = static_cast<float>(sgd ? o.momentum : o.beta1);
    optimizer.beta2 = static_cast<float>(o.beta2);
    optimizer.epsilon = static_cast<float>(o.epsilon);
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
  throw base::ConfigError(141, "optim.name = \"" + o.name + "\" is not an optimizer: adamw, sgd or lion");
}

}  // namespace lockstep::optim
