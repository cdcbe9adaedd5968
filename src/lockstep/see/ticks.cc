#include "lockstep/see/ticks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::see {

std::string tick_label(double value, double step) {
  if (value == 0) return "0";
  struct Unit {
    double size;
    const char* name;
  };
  constexpr Unit kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}};
  for (const Unit& unit : kUnits) {
    if (std::abs(value) < unit.size) continue;
    const double size = unit.size == 1e4 ? 1e3 : unit.size;
    return tick_label(value / size, step / size) + unit.name;
  }
  if (std::abs(value) < 1e-4) return fmt::format("{:.3g}", value);
  const int places = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 8);
  return fmt::format("{:.{}f}", value, places);
}

std::vector<Tick> ticks(double low, double high, int wanted) {
  if (!(high > low)) return {{low, tick_label(low, std::max(1e-8, std::abs(low) / 100))}};
  const double raw = (high - low) / std::max(1, wanted), power = std::pow(10, std::floor(std::log10(raw)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = factor * power;
    if (step >= raw * 0.999) break;
  }
  std::vector<Tick> found;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k)
    found.push_back({k * step, tick_label(k * step, step)});
  return found;
}

std::vector<Tick> log_ticks(double low, double high, int wanted) {
  const double decades = std::log10(high / low);
  if (decades < 1) return ticks(low, high, wanted);
  const int every = std::max(1, static_cast<int>(std::ceil(decades / wanted)));
  std::vector<Tick> found;
  for (int power = static_cast<int>(std::floor(std::log10(low))); power <= std::ceil(std::log10(high));
       ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && decades * 3 > wanted) continue;
      const double at = factor * std::pow(10, power);
      if (at < low * (1 - 1e-9) || at > high * (1 + 1e-9) || (factor == 1 && power % every != 0)) continue;
      found.push_back({at, tick_label(at, at)});
    }
  }
  return found;
}

}  // namespace lockstep::see
