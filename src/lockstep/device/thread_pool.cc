#include "lockstep/device/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/number.h"
#include "lockstep/base/spin.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads.h"
#include "lockstep/device/waiting.h"

namespace lockstep::device {

namespace {

// Looks until `done` or until the time is over; the clock is read now and then only.
template <class Done>
bool look(int64_t nanoseconds, const Done& done) {
  constexpr int kPauses = 16;
  if (nanoseconds == 0) return done();
  const int64_t until = base::monotonic_ns() + nanoseconds;
  do {
    for (int k = 0; k < kPauses; ++k) {
      if (done()) return true;
      base::pause_cpu();
    }
  } while (base::monotonic_ns() < until);
  return done();
}

int default_threads() {
  if (const char* variable = std::getenv("OMP_NUM_THREADS")) {
    if (const std::optional<int> threads = parse_threads(variable)) return *threads;
  }
  return usable_processors();
}

class Pool {
 public:
  Pool() { resize(0); }
  ~Pool() { stop(); }

  int lanes() const { return static_cast<int>(helpers_.size()) + 1; }

  void resize(int lanes) {
    const std::lock_guard lock(taken_);
    stop();
    stopping_ = false;
    waiting_.forget();  // other threads, other times
    if (lanes < 1) lanes = default_threads();
    for (int lane = 1; lane < lanes; ++lane) {  // with fewer of them the bits are the same
      if (!base::add_helper(helpers_, [this, lane] { help(lane); })) return;
    }
  }

  void run(int64_t items, int lanes, const void* context, ItemFunction function) {
    const std::unique_lock lock(taken_, std::try_to_lock);
    if (!lock.owns_lock() || helpers_.empty() || lanes <= 1 || items <= 1) {
      for (int64_t item = 0; item < items; ++item) function(context, item, 0);
      return;
    }
    const int64_t began = base::monotonic_ns();
    // First close: a helper that still holds the last job's ticket must not take an item with the new job's
    // numbers.
    const uint64_t job = ++jobs_ << kItemBits;
    ticket_.store(job | kItemMask);
    context_.store(context, std::memory_order_release);
    function_.store(function, std::memory_order_release);
    items_.store(items, std::memory_order_release);
    lanes_.store(lanes, std::memory_order_release);
    done_.store(0, std::memory_order_release);
    ticket_.store(job, std::memory_order_release);
    round_.fetch_add(1);
    if (asleep_.load() > 0) wake(helpers_wake_);
    work(job, 0);
    wait_until_done(static_cast<uint32_t>(items));
    waiting_.took(reinterpret_cast<const void*>(function), items, base::monotonic_ns() - began);
  }

 private:
  // A ticket is the job's number and the next item: taking an item of a job that is over fails.
  static constexpr int kItemBits = 32;
  static constexpr uint64_t kItemMask = (uint64_t{1} << kItemBits) - 1;

  void work(uint64_t job, int lane) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while ((ticket & ~kItemMask) == job) {
      const auto item = static_cast<int64_t>(ticket & kItemMask);
      // Whoever reads a number of a later job here finds the ticket changed below.
      const void* context = context_.load(std::memory_order_acquire);
      const ItemFunction function = function_.load(std::memory_order_acquire);
      const int64_t items = items_.load(std::memory_order_acquire);
      if (item >= items || lane >= lanes_.load(std::memory_order_acquire)) return;
      if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
      function(context, item, lane);
      if (done_.fetch_add(1) + 1 == items && caller_sleeps_.load()) wake(caller_wakes_);
      ticket = ticket_.load(std::memory_order_acquire);
    }
  }

  void wait_until_done(uint32_t items) {
    if (look(waiting_.now().caller_ns, [&] { return done_.load(std::memory_order_acquire) == items; }))
      return;
    std::unique_lock lock(sleep_);
    caller_sleeps_ = true;
    caller_wakes_.wait(lock, [&] { return done_.load() == items; });
    caller_sleeps_ = false;
  }

  // Whoever goes to sleep says so first and then looks once more; whoever wakes changes what is looked at
  // first and then asks whether anybody sleeps. Both in one total order, so no wake is lost.
  void wake(std::condition_variable& sleepers) {
    { const std::lock_guard lock(sleep_); }
    sleepers.notify_all();
  }

  void help(int lane) {
    uint32_t seen = round_.load();
    while (!stopping_.load()) {
      work(ticket_.load(std::memory_order_acquire) & ~kItemMask, lane);
      if (!look(waiting_.now().helper_ns, [&] { return round_.load() != seen; })) {
        std::unique_lock lock(sleep_);
        asleep_.fetch_add(1);
        helpers_wake_.wait(lock, [&] { return round_.load() != seen; });
        asleep_.fetch_sub(1);
      }
      seen = round_.load();
    }
  }

  void stop() {
    stopping_ = true;
    round_.fetch_add(1);
    wake(helpers_wake_);
    for (std::thread& helper : helpers_) helper.join();
    helpers_.clear();
  }

  std::mutex taken_;
  std::vector<std::thread> helpers_;
  uint64_t jobs_ = 0;
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<uint64_t> ticket_{0};
  std::atomic<const void*> context_{nullptr};
  std::atomic<ItemFunction> function_{nullptr};
  std::atomic<int64_t> items_{0};
  std::atomic<int> lanes_{1};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<uint32_t> round_{0};  // goes on with every job: what helpers sleep on
  std::mutex sleep_;
  std::condition_variable helpers_wake_, caller_wakes_;
  std::atomic<int> asleep_{0};
  WaitingChoice waiting_;
  std::atomic<bool> caller_sleeps_{false};
};

thread_local bool alone = false;

Pool& pool() {
  static Pool one;
  return one;
}

}  // namespace

std::optional<int> parse_threads(std::string_view text) {
  const std::optional<int> threads = base::parse_number<int>(base::trimmed(text.substr(0, text.find(','))));
  return threads >= 1 && threads <= kMostThreads ? threads : std::nullopt;
}

int usable_processors() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

int thread_count() { return pool().lanes(); }
void set_thread_count(int n) { pool().resize(n); }
void work_alone() { alone = true; }
void run_items(int64_t items, int lanes, const void* context, ItemFunction function) {
  if (alone) {
    for (int64_t item = 0; item < items; ++item) function(context, item, 0);
    return;
  }
  pool().run(items, lanes, context, function);
}

}  // namespace lockstep::device
