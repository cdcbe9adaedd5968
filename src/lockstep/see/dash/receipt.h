// The receipt of a run as the page shows it: what was forecast, what it took, and what the forecast is made
// of.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/see/metric_table.h"

namespace lockstep::see {

// Null where the folder has no forecast, as while a run still trains; {"problem": why} where it has one that
// cannot be compared. `rows` are what the run has logged: its file is not read again.
nlohmann::json receipt_of(const std::string& folder, const MetricTable& rows);

}  // namespace lockstep::see
