#include "lockstep/see/series.h"

#include <algorithm>
#include <cmath>

namespace lockstep::see {

Series series_of(const RunLog& log, const std::string& metric, Axis axis) {
  Series series{.name = log.name(), .points = {}};
  const MetricTable& rows = log.rows();
  const std::vector<double>* values = rows.find(metric);
  if (values == nullptr) return series;
  const std::vector<double> places = places_of(rows, axis);
  for (size_t i = 0; i < values->size(); ++i) {
    if (!std::isnan((*values)[i])) series.points.push_back({places[i], (*values)[i]});
  }
  std::stable_sort(series.points.begin(), series.points.end(),
                   [](const Point& a, const Point& b) { return a.x < b.x; });
  return series;
}

std::vector<double> places_of(const MetricTable& rows, Axis axis) {
  std::vector<double> places(rows.size());
  const std::vector<double>* tokens = rows.find("tokens");
  double latest = 0, began = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (tokens != nullptr && i < tokens->size() && !std::isnan((*tokens)[i])) latest = (*tokens)[i];
    if (began == 0) began = rows.seconds(i);
    places[i] = axis == Axis::tokens ? latest
                : axis == Axis::time ? rows.seconds(i) - began
                                     : static_cast<double>(rows.step(i));
  }
  return places;
}

std::vector<Point> smoothed(const std::vector<Point>& points, double weight) {
  if (weight <= 0) return points;
  std::vector<Point> out = points;
  double sum = 0, left = 1;
  for (Point& point : out) {
    sum = weight * sum + (1 - weight) * point.y;
    left *= weight;
    point.y = sum / (1 - left);
  }
  return out;
}

std::vector<Point> thinned(const std::vector<Point>& points, size_t count) {
  const size_t stretches = std::max<size_t>(1, count / 4);
  if (points.size() <= std::max<size_t>(count, 4)) return points;
  const double first = points.front().x, width = points.back().x - first;
  std::vector<Point> out;
  for (size_t begin = 0; begin < points.size();) {
    const double share = width > 0 ? (points[begin].x - first) / width : 0;
    const auto stretch = std::min(static_cast<size_t>(share * static_cast<double>(stretches)), stretches - 1);
    const double limit = first + width * static_cast<double>(stretch + 1) / static_cast<double>(stretches);
    size_t end = begin + 1;
    while (end < points.size() && (points[end].x < limit || stretch + 1 == stretches)) ++end;
    const auto by_y = [](const Point& a, const Point& b) { return a.y < b.y; };
    const auto from = points.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to = points.begin() + static_cast<std::ptrdiff_t>(end);
    const auto [low, high] = std::minmax_element(from, to, by_y);
    std::vector<std::vector<Point>::const_iterator> kept{from, low, high, to - 1};
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const auto& one : kept) out.push_back(*one);
    begin = end;
  }
  return out;
}

}  // namespace lockstep::see
