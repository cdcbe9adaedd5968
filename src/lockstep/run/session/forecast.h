// What a recipe would take on machines that need not be here: time by part, memory, and how long to the end.
//
//     const Forecast f = forecast(recipe::read_recipe({.file = "llama-8b.toml"}),
//     plan::parse_place("8xH100")); f.step_seconds, f.parts, f.memory, f.hours ...
//
// The programs of all ranks are compiled as training would compile them, walked by the simulator
// (plan/simulate.h) and priced on the machine's model; nothing is opened, read or allocated.
#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/catalogue/place.h"
#include "lockstep/plan/choose.h"
#include "lockstep/run/session/choose_layout.h"
#include "lockstep/run/session/remedy_menu.h"
#include "lockstep/run/session/session_plan.h"

namespace lockstep::run {

struct Forecast {
  std::string layout;  // "data=8,zero=3"
  std::string precision, recompute;
  double step_seconds = 0;
  std::vector<plan::TimePart> parts;  // they add up to the step
  std::vector<plan::TimePart> verbs;  // so do these: as the marks of a real run tell it
  double save_seconds = 0;            // of one checkpoint: for so long it holds the run up
  int64_t save_steps = 0;             // between saves; 0: as many minutes
  double save_minutes = 0;            // 0: only at the end
  double evaluation_seconds = 0;      // of one, on the slices that the recipe holds out; 0: it holds out none
  int64_t evaluations = 0;
  std::vector<plan::MemoryPart> memory;  // of the fullest rank
  std::vector<int64_t> stage_bytes;      // of the fullest rank of each pipeline stage
  int64_t peak_bytes = 0, available_bytes = 0;
  int64_t parameters = 0, steps = 0;
  int64_t checkpoint_bytes = 0;  // of one checkpoint: weights in fp32 and the optimizer's moments
  double units_per_step = 0;     // tokens, or samples
  const char* unit = "tokens";
  double mfu = 0;
  double watts = 0;           // of all machines
  double hours = 0, kwh = 0;  // to the end, with saves and evaluations
  double error = 0.2;         // the share by which it may well be off
  bool fits() const { return peak_bytes <= available_bytes; }
  double units_per_second() const { return step_seconds > 0 ? units_per_step / step_seconds : 0; }
  double part(const std::string& name) const;  // seconds; 0: there is none
  double saves() const;                        // how many
  double save_hours() const;                   // of `hours`
  void take_step(double seconds);              // another step's time; hours and energy follow
};

// How a plan for that place is made: of a device that is not here.
PlanOptions options_for(const plan::Place& place);
device::Absent absent_of(const plan::DeviceRow& device, const plan::Machine& model);

// Of the recipe's own layout. ConfigError where it is impossible; a forecast that does not fit says so
// itself.
// `known`: what earlier forecasts of this recipe have compiled, in the same layout or others.
Forecast forecast(const recipe::Resolved& resolved, const plan::Place& place, Known* known = nullptr);

// Of a run that is about to begin on this machine: as lockstep bench machine has measured it, or as it says
// of itself.
struct Here {
  plan::Machine machine;
  bool measured = false;
};
Here this_place(const Plan& plan);
Forecast forecast_here(const Plan& plan, const Here& here);

// All layouts, the best first (plan/choose.h); `all`: those too that the recipe has settled otherwise.
// `times` as much work as parallel.auto takes upon itself before it leaves the rest unseen.
plan::Choice layouts_on(const recipe::Resolved& resolved, const plan::Place& place, bool all, int times = 1);

// What would make it fit there (run/session/remedy_menu.h).
std::vector<MenuRow> remedies_on(const recipe::Resolved& resolved, const plan::Place& place);

// The layout that cuts the model least, of those that fit: found in a moment. ConfigError 183 where none
// does.
plan::Candidate simple_layout(const recipe::Resolved& resolved, const plan::Place& place,
                              Known* known = nullptr);

// The largest part that could be less, and what would make it so.
struct Bottleneck {
  std::string part;
  double share = 0;    // of the step
  std::string remedy;  // a sentence
};
Bottleneck bottleneck_of(const Forecast& forecast, const recipe::Recipe& recipe, const plan::Place& place);

}  // namespace lockstep::run
