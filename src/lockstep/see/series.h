// Numbers over steps, tokens or time, made from the rows of a run: what is drawn or written elsewhere.
#pragma once

#include <string>
#include <vector>

#include "lockstep/see/run_log.h"

namespace lockstep::see {

enum class Axis { step, tokens, time };  // time: seconds since the run's first row

struct Point {
  double x = 0, y = 0;
};

struct Series {
  std::string name;
  std::vector<Point> points;  // by x
};

// One metric of a run; empty where it has none.
Series series_of(const RunLog& log, const std::string& metric, Axis axis);

// Where each row is on an axis. A row without tokens gets those of the row before it.
std::vector<double> places_of(const MetricTable& rows, Axis axis);

// The exponential mean with this weight for what was before, corrected for its beginning; 0 changes nothing.
std::vector<Point> smoothed(const std::vector<Point>& points, double weight);

// At most about `count` points that look the same: of each stretch of x its first, lowest, highest and last.
std::vector<Point> thinned(const std::vector<Point>& points, size_t count);

}  // namespace lockstep::see
