// Where the time went until the first step: `lockstep train --startup`'s table.
#pragma once

#include <string>

#include "lockstep/base/laps.h"

namespace lockstep::terminal {

std::string laps_table(const base::Laps& laps);  // a row a lap, and the total

}  // namespace lockstep::terminal
