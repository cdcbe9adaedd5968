#include "lockstep/data/formats/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/threads.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMostThreads = 16;  // beyond this, memory is the limit

}  // namespace

void parallel_for(int64_t count, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  int64_t failed_at = count;
  std::exception_ptr error;
  const auto run = [&] {
    // Indices are handed out in order, so every index below a failed one has been or will be tried.
    for (int64_t i; (i = next.fetch_add(1)) < count;) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed_at) {
          failed_at = i;
          error = std::current_exception();
        }
        next.store(count);  // no use in going on
      }
    }
  };
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> helpers;
    for (int64_t i = 1; i < std::min({count, cores, kMostThreads}); ++i) {
      if (!base::add_helper(helpers, run)) break;
    }
    run();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep::data
