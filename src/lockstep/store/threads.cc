#include "lockstep/store/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/signals_blocked.h"

namespace lockstep::store {

void in_threads(int threads, int64_t count, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failed;
  const auto run = [&] {
    for (int64_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failed) failed = std::current_exception();
        next = count;
      }
    }
  };
  const int64_t started = std::min<int64_t>(threads, count) - 1;
  std::vector<std::thread> others;
  {
    const base::SignalsBlocked ours_alone;
    for (int64_t i = 0; i < started; ++i) others.emplace_back(run);
  }
  run();
  for (std::thread& one : others) one.join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace lockstep::store
