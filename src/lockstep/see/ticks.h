// Where the marks of an axis stand and how they are written: 0, 50, 100 ...; 1, 10, 100 on a logarithmic one.
#pragma once

#include <string>
#include <vector>

namespace lockstep::see {

struct Tick {
  double at;
  std::string label;
};

// Between low and high, which may be equal; about `wanted` of them.
std::vector<Tick> ticks(double low, double high, int wanted);
std::vector<Tick> log_ticks(double low, double high, int wanted);  // both above 0

std::string tick_label(double value,
                       double step);  // as many places as `step` needs; 12k, 3.5M where that is shorter

}  // namespace lockstep::see
