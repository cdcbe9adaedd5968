// The learning rate of a step: linear warmup, then the schedule, scaled with the global batch.
#pragma once

#include <cstdint>

#include "lockstep/recipe/recipe.h"

namespace lockstep::optim {

// `step` counts from 0; the first step already moves (warmup gives (step + 1) / warmup of the peak).
// After warmup, with t the share of the schedule's remaining steps that is done and m = min_lr:
//   constant 1 · linear 1 - (1-m) t · cosine m + (1-m) (1 + cos pi t) / 2
//   wsd 1 until the last decay_fraction of all steps, then linearly to m · inverse_sqrt sqrt(warmup / step)
// Behind the schedule's last step it stays m.
double learning_rate(const recipe::Recipe& recipe, int64_t step);

// How long the schedule is: optim.decay_steps, or the run.
int64_t schedule_steps(const recipe::Recipe& recipe);

// The factor that optim.lr_scale gives for batch.global against optim.base_batch.
double batch_scale(const recipe::Recipe& recipe);

}  // namespace lockstep::optim
