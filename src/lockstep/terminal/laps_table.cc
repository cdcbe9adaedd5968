#include "lockstep/terminal/laps_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/terminal/table.h"

namespace lockstep::terminal {

std::string laps_table(const base::Laps& laps) {
  Table table({"from the process's start", "ms", "share"});
  for (const size_t column : {1, 2}) table.align_right(column);
  const double whole = std::max(laps.total(), 1e-9);
  const auto add = [&](const std::string& what, double seconds) {
    table.add({what, fmt::format("{:.1f}", 1e3 * seconds), fmt::format("{:.1f} %", 100 * seconds / whole)});
  };
  for (const base::Laps::Lap& lap : laps.all()) add(lap.what, lap.seconds);
  add("to the end of the first step", whole);
  for (const base::Laps::Lap& lap : laps.meanwhile()) add("meanwhile: " + lap.what, lap.seconds);
  return table.to_text(80);
}

}  // namespace lockstep::terminal
