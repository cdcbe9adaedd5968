// The learning rate of a step: linear warmup, then the schedule, scaled with the global batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/recipe/recipe.h"

namespace lockstep::optim {

// Where a schedule stands: all counts in steps.
struct SchedulePosition {
  double step = 0, warmup = 0, steps = 0;  // of the whole schedule
  double share() const;                    // of what lies behind the warm-up, that is done
};

// One row of the table of schedules. A program adds its own before it reads a recipe.
struct Schedule {
  std::string name;
  std::string describe;                 // one line
  std::vector<std::string> reads = {};  // keys of [optim] that count for this schedule and not for all
  // Behind the warm-up: what the peak is multiplied with.
  double (*factor)(const recipe::Recipe::Optim&, const SchedulePosition&) = nullptr;
  bool falls = false;  // to optim.min_lr, at optim.decay_steps
};
const std::vector<Schedule>& schedules();
const Schedule& find_schedule(const std::string& name);  // ConfigError 140
void register_schedule(Schedule schedule);

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
