// What `lockstep plan` can be asked besides one forecast.
#pragma once

#include <string>

#include "lockstep/plan/catalogue/place.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::cli {

int plan_published(bool json);  // --published
// --scale FIRST:LAST
int plan_scale(const recipe::Resolved& resolved, const plan::Place& place, const std::string& range,
               bool json);

}  // namespace lockstep::cli
