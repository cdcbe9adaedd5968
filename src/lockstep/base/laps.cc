#include "lockstep/base/laps.h"

#include <algorithm>

#include "lockstep/base/clock.h"

namespace lockstep::base {

Laps::Laps(std::string_view first)
    : laps_{{std::string(first), seconds_since_process_start()}}, last_ns_(monotonic_ns()) {}

Laps::Laps() : last_ns_(monotonic_ns()) {}

Laps Laps::from_now() { return {}; }

void Laps::add_meanwhile(const Laps& other) {
  meanwhile_.insert(meanwhile_.end(), other.laps_.begin(), other.laps_.end());
}

void Laps::end(std::string_view what) {
  const int64_t now = monotonic_ns();
  auto lap = std::find_if(laps_.begin(), laps_.end(), [&](const Lap& one) { return one.what == what; });
  if (lap == laps_.end()) lap = laps_.insert(laps_.end(), {std::string(what), 0});
  lap->seconds += static_cast<double>(now - last_ns_) / 1e9;
  last_ns_ = now;
}

double Laps::total() const {
  double sum = 0;
  for (const Lap& lap : laps_) sum += lap.seconds;
  return sum;
}

}  // namespace lockstep::base
