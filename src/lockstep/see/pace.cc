#include "lockstep/see/pace.h"

#include <algorithm>
#include <cmath>

namespace lockstep::see {

namespace {

// Of the numbers among the last `count` rows; 0: there are none.
double median_of_last(const std::vector<double>* values, size_t rows, size_t count) {
  if (values == nullptr) return 0;
  std::vector<double> some;
  for (size_t i = rows > count ? rows - count : 0; i < values->size(); ++i) {
    if (!std::isnan((*values)[i])) some.push_back((*values)[i]);
  }
  if (some.empty()) return 0;
  const auto middle = some.begin() + static_cast<std::ptrdiff_t>(some.size() / 2);
  std::nth_element(some.begin(), middle, some.end());
  return *middle;
}

}  // namespace

Pace pace_of(const MetricTable& rows) {
  constexpr size_t kLately = 20, kEnough = 100;
  constexpr double kWorthAWord = 1.25;
  Pace pace;
  const std::vector<double>* step_ms = rows.find("step_ms");
  pace.usual = median_of_last(step_ms, rows.size(), rows.size()) / 1e3;
  pace.lately = median_of_last(step_ms, rows.size(), kLately) / 1e3;
  if (rows.size() >= kEnough && pace.usual > 0 && pace.lately > kWorthAWord * pace.usual)
    pace.slower = pace.lately / pace.usual;
  const double waits = median_of_last(rows.find("data_wait_ms"), rows.size(), kLately) / 1e3;
  if (pace.lately > 0) pace.data_share = std::clamp(waits / pace.lately, 0.0, 1.0);
  return pace;
}

}  // namespace lockstep::see
