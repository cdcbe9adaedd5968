// Optimizers: which update rule a recipe asks for, with its constants and how many moments it keeps.
#pragma once

#include "lockstep/kernels/optimizer/optimizer.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::optim {

struct Optimizer {
  kernels::UpdateRule rule = kernels::UpdateRule::adamw;
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
