// The one sentence for a wait that was in vain, the same from every kind of store.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/store/store.h"

namespace lockstep::comm {

// Nobody set a key in time: LS0510.
struct StoreTimeoutError : base::CommError {
  using CommError::CommError;
};

// StoreTimeoutError: names up to three of the keys that are missing.
[[noreturn]] void throw_store_timeout(const std::vector<std::string>& missing, Duration timeout);

// A year stands for ever: longer timeouts are cut, so that no deadline overflows the clock. Negative ones are
// zero.
constexpr Duration kLongestTimeout = std::chrono::hours(24 * 365);
inline Duration sane_timeout(Duration timeout) {
  return timeout < Duration::zero()  ? Duration::zero()
         : timeout > kLongestTimeout ? kLongestTimeout
                                     : timeout;
}

}  // namespace lockstep::comm
