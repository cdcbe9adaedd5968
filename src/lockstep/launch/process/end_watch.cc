#include "lockstep/launch/process/end_watch.h"

#include <signal.h>

#include <condition_variable>
#include <mutex>
#include <optional>

namespace lockstep::launch {

namespace {

constexpr Duration kLook{100};

}  // namespace

EndWatch::EndWatch(std::vector<int> signals, Duration patience, std::function<void(int)> end)
    : signals_(std::move(signals)),
      patience_(patience),
      end_(std::move(end)),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

int EndWatch::pending() const {
  sigset_t waiting;
  sigpending(&waiting);
  for (const int number : signals_) {
    if (sigismember(&waiting, number) == 1) return number;
  }
  return 0;
}

void EndWatch::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any alarm;
  std::unique_lock lock(mutex);
  std::optional<Clock::time_point> since;
  while (!alarm.wait_for(lock, stop, kLook, [&] { return stop.stop_requested(); })) {
    const Clock::time_point now = Clock::now();
    const int number = pending();
    if (number == 0) since.reset();
    if (number != 0 && !since) since = now;
    if (since && now - *since > patience_) end_(number);
    const Clock::rep end_by = end_by_.load();
    if (end_by != 0 && now.time_since_epoch().count() > end_by) end_(0);
  }
}

}  // namespace lockstep::launch
