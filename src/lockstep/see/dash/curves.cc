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
std::vector<Point> inside(const std::vector<Point>& points, const CurvesWish& wish) {
  const auto before = [](const Point& a, double x) { return a.x < x; };
  auto first = points.begin(), last = points.end();
  if (wish.from) first = std::lower_bound(points.begin(), points.end(), *wish.from, before);
  if (wish.to)
    last = std::upper_bound(points.begin(), points.end(), *wish.to,
                            [](double x, const Point& a) { return x < a.x; });
  if (first != points.begin()) --first;
  if (last != points.end()) ++last;
  return first < last ? std::vector<Point>(first, last) : std::vector<Point>();
}

void add_line(const std::string& run, const std::string& metric, const std::vector<Point>& all,
              const CurvesWish& wish, json& lines) {
  const std::vector<Point> raw = inside(all, wish);
  const auto columns = [](const std::vector<Point>& points, json& x, json& y) {
    x = json::array(), y = json::array();
    for (const Point& point : points) x.push_back(point.x), y.push_back(point.y);
  };
  json line{{"run", run}, {"metric", metric}, {"total", raw.size()}};
  const std::vector<Point> thin = thinned(raw, wish.points);
  line["exact"] = thin.size() == raw.size();
  columns(thin, line["x"], line["y"]);
  if (wish.smooth > 0) {
    line["raw"] = {{"x", line["x"]}, {"y", line["y"]}};
    columns(thinned(inside(smoothed(all, wish.smooth), wish), wish.points), line["x"], line["y"]);
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
               const CurvesWish& wish, json& marks) {
  const MetricTable& rows = log.rows();
  if (rows.empty()) return;
  const std::vector<double> places = places_of(rows, wish.axis);
  constexpr size_t kMost = 200;
  size_t left = kMost;
  for (auto event = events.rbegin(); event != events.rend() && left > 0; ++event) {
    if (!worth_a_mark(*event)) continue;
    const double x =
        wish.axis == Axis::step ? static_cast<double>(event->step) : places[row_of(rows, event->step)];
    if ((wish.from && x < *wish.from) || (wish.to && x > *wish.to)) continue;
    marks.push_back(
        {{"run", run}, {"event", event->name}, {"why", event->why}, {"step", event->step}, {"x", x}});
    --left;
  }
}

}  // namespace

CurvesWish read_wish(const http::Request& request) {
  constexpr double kFar = 1e18;
  CurvesWish wish;
  wish.metrics = request.values("metric");
  constexpr size_t kMostMetrics = 50;
  if (wish.metrics.size() > kMostMetrics) wish.metrics.resize(kMostMetrics);
  const std::string x = request.value("x");
  if (!x.empty() && x != "step" && x != "tokens" && x != "time")
    throw base::ConfigError(109, fmt::format("x={}: expected step, tokens or time", base::quoted(x)));
  wish.axis = x == "tokens" ? Axis::tokens : x == "time" ? Axis::time : Axis::step;
  const auto given = [&](const char* name) { return request.value(name); };
  if (!given("smooth").empty()) wish.smooth = read_number("smooth", given("smooth"), 0, 0.9999);
  if (!given("from").empty()) wish.from = read_number("from", given("from"), -kFar, kFar);
  if (!given("to").empty()) wish.to = read_number("to", given("to"), -kFar, kFar);
  if (!given("points").empty())
    wish.points = static_cast<size_t>(read_number("points", given("points"), 10, 10000));
  return wish;
}

void add_curves(const std::string& run, const RunLog& log, const std::vector<RunEvent>& events,
                const CurvesWish& wish, json& answer) {
  json& known = answer["metrics"];
  for (const std::string& name : log.rows().names()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
  }
  for (const std::string& metric : wish.metrics) {
    const Series series = series_of(log, metric, wish.axis);
    if (!series.points.empty()) add_line(run, metric, series.points, wish, answer["lines"]);
  }
  add_marks(run, log, events, wish, answer["marks"]);
}

}  // namespace lockstep::see
