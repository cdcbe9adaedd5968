// An optimizer: gradient descent with momentum, as sgd is, written as a program's own rule.
#include "extension.h"
#include "lockstep/optim/optimizer.h"

namespace {

using namespace lockstep;

void rule(const kernels::OwnUpdate& u) {
  for (int64_t i = 0; i < u.count; ++i) {
    u.m[i] = u.beta1 * u.m[i] + u.gradient[i] * u.clip;
    u.master[i] -= u.rate * (u.m[i] + u.weight_decay * u.master[i]);
  }
}

}  // namespace

lockstep::optim::OptimizerKind heavy_ball() {
  return {
      .name = "heavy_ball",
      .describe = "gradient descent with momentum",
      .reads = {"optim.momentum"},
      .own = rule,
      .constants = [](const recipe::Recipe::Optim& o) { return optim::RuleConstants{.beta1 = o.momentum}; },
      .state = [](const device::Shape& of) { return optim::element_state({"m"}, of); }};
}
