// Stretches of time, from and to, and how long they are together.
//
//     length_of_both(computes, sends) is how long a rank does both at once
#pragma once

#include <utility>
#include <vector>

namespace lockstep::base {

using Stretch = std::pair<double, double>;  // from, to

std::vector<Stretch> joined(std::vector<Stretch> all);  // in order; those that touch become one
double length(const std::vector<Stretch>& joined);
double length_of_both(const std::vector<Stretch>& a, const std::vector<Stretch>& b);  // both joined

}  // namespace lockstep::base
