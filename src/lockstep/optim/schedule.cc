#include "lockstep/optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/registry.h"

namespace lockstep::optim {

namespace {

using Optim = recipe::Recipe::Optim;

using Position = SchedulePosition;

double constant(const Optim&, const Position&) { return 1; }
double linear(const Optim& o, const Position& p) { return 1 - (1 - o.min_lr) * p.share(); }
double cosine(const Optim& o, const Position& p) {
  return o.min_lr + (1 - o.min_lr) * 0.5 * (1 + std::cos(3.14159265358979323846 * p.share()));
}
double warmup_stable_decay(const Optim& o, const Position& p) {
  const double decay = std::max(1.0, o.decay_fraction * p.steps), begin = p.steps - decay;
  if (p.step < begin) return 1;
  return 1 - (1 - o.min_lr) * std::min(1.0, (p.step - begin) / decay);
}
double inverse_sqrt(const Optim&, const Position& p) {
  const double from = std::max(1.0, p.warmup);
  return std::sqrt(from / std::max(from, p.step));
}

base::Registry<Schedule>& registry() {
  static base::Registry<Schedule> all(
      "schedule", {{.name = "constant", .describe = "no fall", .factor = constant},
                   {.name = "linear",
                    .describe = "linear decay",
                    .reads = {"optim.min_lr", "optim.decay_steps"},
                    .factor = linear,
                    .falls = true},
                   {.name = "cosine",
                    .describe = "cosine decay",
                    .reads = {"optim.min_lr", "optim.decay_steps"},
                    .factor = cosine,
                    .falls = true},
                   {.name = "wsd",
                    .describe = "constant, then linear decay",
                    .reads = {"optim.min_lr", "optim.decay_steps", "optim.decay_fraction"},
                    .factor = warmup_stable_decay,
                    .falls = true},
                   {.name = "inverse_sqrt",
                    .describe = "decay with the inverse square root of the step",
                    .factor = inverse_sqrt}});
  return all;
}

}  // namespace

double SchedulePosition::share() const {
  return std::clamp((step - warmup) / std::max(1.0, steps - warmup), 0.0, 1.0);
}

const std::vector<Schedule>& schedules() { return registry().rows(); }

const Schedule& find_schedule(const std::string& name) {
  if (const Schedule* schedule = registry().find(name)) return *schedule;
  throw base::ConfigError(140, "optim.schedule = \"" + name + "\" is not a schedule");
}

void register_schedule(Schedule schedule) {
  LS_ASSERT(schedule.factor != nullptr, "schedule " + schedule.name + " has no factor function");
  registry().add(std::move(schedule));
}

double batch_scale(const recipe::Recipe& recipe) {
  const double ratio =
      static_cast<double>(recipe.batch.global) / static_cast<double>(recipe.optim.base_batch);
  if (recipe.optim.lr_scale == "linear") return ratio;
  if (recipe.optim.lr_scale == "sqrt") return std::sqrt(ratio);
  return 1;
}

int64_t schedule_steps(const recipe::Recipe& recipe) {
  return recipe.optim.decay_steps.is_auto ? recipe.run.steps : recipe.optim.decay_steps.value;
}

double learning_rate(const recipe::Recipe& recipe, int64_t step) {
  const Optim& o = recipe.optim;
  const Position p{static_cast<double>(step), static_cast<double>(o.warmup),
                   static_cast<double>(schedule_steps(recipe))};
  const double peak = o.lr * batch_scale(recipe);
  if (step < o.warmup) return peak * static_cast<double>(step + 1) / p.warmup;
  return peak * find_schedule(o.schedule).factor(o, p);
}

}  // namespace lockstep::optim
