#include "lockstep/base/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace lockstep::base {

void raise_descriptor_limit(int wanted) {
  constexpr rlim_t kOthers = 256;  // that are open anyway
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t goal = std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(wanted) + kOthers);
  if (limit.rlim_cur >= goal) return;
  limit.rlim_cur = goal;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int descriptor_limit() {
  rlimit limit{};
  constexpr rlim_t kUsual = 1024, kMost = 1 << 30;
  return static_cast<int>(std::min(kMost, ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : kUsual));
}

}  // namespace lockstep::base
