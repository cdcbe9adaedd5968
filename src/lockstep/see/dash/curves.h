// Curves for a screen: of a million points those that can be seen, all of them where one looks closely.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/http/request.h"
#include "lockstep/see/run_events.h"
#include "lockstep/see/run_log.h"
#include "lockstep/see/series.h"

namespace lockstep::see {

struct CurvesOptions {
  std::vector<std::string> metrics;
  Axis axis = Axis::step;
  double smooth = 0;               // 0 to below 1
  std::optional<double> from, to;  // of the axis; none: from the first, to the last
  size_t points = 1000;            // of each line, about
};

// ?metric=loss&metric=lr&x=tokens&smooth=0.9&from=10&to=20&points=800. ConfigError 109 for what is none.
CurvesOptions read_curves_options(const http::Request& request);

// Appends this run's part: to "metrics" the names that are not there yet, to "lines" one object per metric it
// has ({run, metric, x, y, raw, total, exact}), to "marks" its events.
void add_curves(const std::string& run, const RunLog& log, const std::vector<RunEvent>& events,
                const CurvesOptions& options, nlohmann::json& answer);

}  // namespace lockstep::see
