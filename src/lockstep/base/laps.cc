#include "lockstep/base/laps.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/clock.h"
#include "lockstep/base/table.h"

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

std::string Laps::to_text() const {
  Table table({"from the process's start", "ms", "share"});
  for (const size_t column : {1, 2}) table.align_right(column);
  const double whole = std::max(total(), 1e-9);
  const auto add = [&](const std::string& what, double seconds) {
    table.add({what, fmt::format("{:.1f}", 1e3 * seconds), fmt::format("{:.1f} %", 100 * seconds / whole)});
  };
  for (const Lap& lap : laps_) add(lap.what, lap.seconds);
  add("to the end of the first step", whole);
  for (const Lap& lap : meanwhile_) add("meanwhile: " + lap.what, lap.seconds);
  return table.to_text(80);
}

}  // namespace lockstep::base
