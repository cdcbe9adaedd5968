#include "lockstep/see/dash/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::see {

namespace {

using nlohmann::json;

double read_number(const std::string& name, const std::string& text, double low, double high) {
  const auto value = base::parse_number<double>(text);
  if (!value || !(*value >= low && *value <= high))
    throw base::ConfigError(
        109, fmt::format("{}={}: expected a number from {} to {}", name, base::quoted(text), low, high));
  return *value;
}

// The points inside the range, and one on each side so that lines reach the edge.
std::vector<Point> inside(const std::vector<Point>& points, const CurvesOptions& options) {
  const auto before = [](const Point& a, double x) { return a.x < x; };
  auto first = points.begin(), last = points.end();
  if (options.from) first = std::lower_bound(points.begin(), points.end(), *options.from, before);
  if (options.to)
    last = std::upper_bound(points.begin(), points.end(), *options.to,
                            [](double x, const Point& a) { return x < a.x; });
  if (first != points.begin()) --first;
  if (last != points.end()) ++last;
  return first < last ? std::vector<Point>(first, last) : std::vector<Point>();
}

void add_line(const std::string& run, const std::string& metric, const std::vector<Point>& all,
              const CurvesOptions& options, json& lines) {
  const std::vector<Point> raw = inside(all, options);
  const auto columns = [](const std::vector<Point>& points, json& x, json& y) {
    x = json::array(), y = json::array();
    for (const Point& point : points) x.push_back(point.x), y.push_back(point.y);
  };
  json line{{"run", run}, {"metric", metric}, {"total", raw.size()}};
  const std::vector<Point> thin = thinned(raw, options.points);
  line["exact"] = thin.size() == raw.size();
  columns(thin, line["x"], line["y"]);
  if (options.smooth > 0) {
    line["raw"] = {{"x", line["x"]}, {"y", line["y"]}};
    columns(thinned(inside(smoothed(all, options.smooth), options), options.points), line["x"], line["y"]);
  }
  lines.push_back(std::move(line));
}

// Routine events would hide the others.
bool worth_a_mark(const RunEvent& event) {
  return event.name != "first_step" && event.name != "checkpoint_saved";
}

// The first row of this step or a later one; the last row where there is none.
size_t row_of(const MetricTable& rows, int64_t step) {
  size_t low = 0, high = rows.size() - 1;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (rows.step(middle) < step) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

void add_marks(const std::string& run, const RunLog& log, const std::vector<RunEvent>& events,
               const CurvesOptions& options, json& marks) {
  const MetricTable& rows = log.rows();
  if (rows.empty()) return;
  const std::vector<double> places = places_of(rows, options.axis);
  constexpr size_t kMost = 200;
  size_t left = kMost;
  for (auto event = events.rbegin(); event != events.rend() && left > 0; ++event) {
    if (!worth_a_mark(*event)) continue;
    const double x =
        options.axis == Axis::step ? static_cast<double>(event->step) : places[row_of(rows, event->step)];
    if ((options.from && x < *options.from) || (options.to && x > *options.to)) continue;
    marks.push_back(
        {{"run", run}, {"event", event->name}, {"why", event->why}, {"step", event->step}, {"x", x}});
    --left;
  }
}

}  // namespace

CurvesOptions read_curves_options(const http::Request& request) {
  constexpr double kFar = 1e18;
  CurvesOptions options;
  options.metrics = request.values("metric");
  constexpr size_t kMostMetrics = 50;
  if (options.metrics.size() > kMostMetrics) options.metrics.resize(kMostMetrics);
  const std::string x = request.value("x");
  if (!x.empty() && x != "step" && x != "tokens" && x != "time")
    throw base::ConfigError(109, fmt::format("x={}: expected step, tokens or time", base::quoted(x)));
  options.axis = x == "tokens" ? Axis::tokens : x == "time" ? Axis::time : Axis::step;
  const auto given = [&](const char* name) { return request.value(name); };
  if (!given("smooth").empty()) options.smooth = read_number("smooth", given("smooth"), 0, 0.9999);
  if (!given("from").empty()) options.from = read_number("from", given("from"), -kFar, kFar);
  if (!given("to").empty()) options.to = read_number("to", given("to"), -kFar, kFar);
  if (!given("points").empty())
    options.points = static_cast<size_t>(read_number("points", given("points"), 10, 10000));
  return options;
}

void add_curves(const std::string& run, const RunLog& log, const std::vector<RunEvent>& events,
                const CurvesOptions& options, json& answer) {
  json& known = answer["metrics"];
  for (const std::string& name : log.rows().names()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
  }
  for (const std::string& metric : options.metrics) {
    const Series series = series_of(log, metric, options.axis);
    if (!series.points.empty()) add_line(run, metric, series.points, options, answer["lines"]);
  }
  add_marks(run, log, events, options, answer["marks"]);
}

}  // namespace lockstep::see
