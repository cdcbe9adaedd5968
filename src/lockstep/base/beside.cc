#include "lockstep/base/beside.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/threads.h"

namespace lockstep::base {

void for_each_beside(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::exception_ptr problem;
  std::once_flag once;
  const auto run = [&] {
    try {
      for (size_t k = next++; k < count; k = next++) work(k);
    } catch (...) {
      std::call_once(once, [&] { problem = std::current_exception(); });
      next = count;
    }
  };
  std::vector<std::jthread> helpers;
  const size_t most = std::min<size_t>(count, std::max(1U, std::thread::hardware_concurrency()));
  while (helpers.size() + 1 < most && add_helper(helpers, run)) {
  }
  run();
  helpers.clear();
  if (problem) std::rethrow_exception(problem);
}

}  // namespace lockstep::base
