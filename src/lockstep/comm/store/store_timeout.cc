#include "lockstep/comm/store/store_timeout.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::comm {

void throw_store_timeout(const std::vector<std::string>& missing, Duration timeout) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> names;
  for (size_t i = 0; i < missing.size() && i < kNamed; ++i) names.push_back(base::quoted(missing[i]));
  std::string list = base::join(names, ", ");
  if (missing.size() > kNamed) list += fmt::format(" and {} more", missing.size() - kNamed);
  const double seconds = std::chrono::duration<double>(timeout).count();
  throw StoreTimeoutError(
      510, fmt::format("key {} was not set in the store within {}: a rank is late or has exited", list,
                       base::human_duration(seconds)));
}

}  // namespace lockstep::comm
