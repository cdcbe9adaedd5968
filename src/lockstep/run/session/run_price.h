// What the machines of a run cost an hour: the recipe's word (run.price), or the catalogue's of the machine
// that this is.
#pragma once

#include <optional>
#include <string>

#include "lockstep/recipe/recipe.h"

namespace lockstep::run {

struct HourlyPrice {
  double usd = 0;    // for all machines
  std::string from;  // "run.price", "2 x p5.48xlarge, on demand in us-east-1"
};

// What can be known of where it runs.
struct Whereabouts {
  int nodes = 1;
  std::string product;                 // what the machine calls itself: EC2 names its kind there
  std::optional<std::string> machine;  // LOCKSTEP_MACHINE
};

// run.price is dollars an hour for all machines of the run, or a machine of the catalogue with a tariff and a
// region, "a3-highgpu-8g spot us-central1". ConfigError 577 where no price is known, with what to write.
HourlyPrice hourly_price(const recipe::Recipe& recipe, const Whereabouts& here);

// The same in dollars where the recipe says it; 0 where it does not, or not so that it can be read.
double known_price(const recipe::Recipe& recipe, int nodes);

}  // namespace lockstep::run
