#include "lockstep/base/stretches.h"

#include <algorithm>

namespace lockstep::base {

std::vector<Stretch> joined(std::vector<Stretch> all) {
  std::sort(all.begin(), all.end());
  std::vector<Stretch> out;
  for (const Stretch& one : all) {
    if (!out.empty() && one.first <= out.back().second) {
      out.back().second = std::max(out.back().second, one.second);
    } else {
      out.push_back(one);
    }
  }
  return out;
}

double length(const std::vector<Stretch>& joined) {
  double sum = 0;
  for (const auto& [from, to] : joined) sum += to - from;
  return sum;
}

double length_of_both(const std::vector<Stretch>& a, const std::vector<Stretch>& b) {
  std::vector<Stretch> all = a;
  all.insert(all.end(), b.begin(), b.end());
  return length(a) + length(b) - length(joined(std::move(all)));
}

}  // namespace lockstep::base
