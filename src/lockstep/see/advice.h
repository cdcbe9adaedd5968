// What would make a run faster: rules that look at where its time goes, each with the most that it could
// bring.
//
//     for (const Advice& one : advice_for(time, keys)) ... one.change, one.why, one.faster ...
//
// A new rule is a row in advice.cc.
#pragma once

#include <string>
#include <vector>

#include "lockstep/see/recipe_keys.h"
#include "lockstep/see/step_time.h"

namespace lockstep::see {

struct Advice {
  std::string change;  // "data.workers=2"
  std::string why;     // what that does, and what it costs
  double faster = 0;   // at most, by this part: 0.12 is 12 % more tokens per second
};

// The most helpful first, three at most. Nothing: computation takes all of the time.
std::vector<Advice> advice_for(const StepTime& time, const RecipeKeys& keys);

// What takes the most time beyond computation, in a sentence.
std::string limit_of(const StepTime& time);

}  // namespace lockstep::see
