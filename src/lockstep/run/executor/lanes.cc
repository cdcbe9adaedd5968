#include "lockstep/run/executor/lanes.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "lockstep/device/thread_pool.h"
#include "lockstep/program/check.h"

namespace lockstep::run {

namespace {

constexpr int kSpins = 2000;  // looks before a waiting lane sleeps: some microseconds

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

struct Lanes::State {
  const program::Program& program;
  std::function<void(size_t)> call;
  struct Lane {
    std::vector<size_t> list;      // instructions
    std::atomic<int64_t> done{0};  // calls finished, in all steps together
    std::thread thread;
  };
  std::map<program::Lane, std::unique_ptr<Lane>> lanes;
  std::vector<std::pair<Lane*, int64_t>>
      place;  // of an instruction: its lane, and how many of that lane come before it
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<int> sleepers{0};
  std::atomic<bool> failed{false}, stopping{false};
  std::exception_ptr error;
  int64_t steps = 0;  // begun; written under the mutex

  // Waits until `ready`, which looks at atomics only.
  template <class Ready>
  void wait(Ready ready) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (ready()) return;
      pause();
    }
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1);
    changed.wait(lock, ready);
    sleepers.fetch_sub(1);
  }
  // After something that a sleeper may look at has changed.
  void tell() {
    if (sleepers.load() == 0) return;
    { const std::lock_guard lock(mutex); }
    changed.notify_all();
  }

  void fail() {
    const std::lock_guard lock(mutex);
    if (!error) error = std::current_exception();
    failed = true;
    changed.notify_all();
  }

  void walk(Lane& lane, int64_t step) {
    try {
      for (const size_t n : lane.list) {
        for (const int other : program.instructions[n].waits) {
          const auto& [on, before] = place[static_cast<size_t>(other)];
          const int64_t enough = step * static_cast<int64_t>(on->list.size()) + before + 1;
          wait([&, on = on] { return on->done.load() >= enough || failed.load(); });
        }
        if (failed.load()) return;
        call(n);
        lane.done.fetch_add(1);
        tell();
      }
    } catch (...) {
      fail();
    }
  }

  void serve(Lane& lane) {
    device::work_alone();
    for (int64_t step = 0;; ++step) {
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return steps > step || stopping; });
        if (stopping) return;
      }
      walk(lane, step);
    }
  }

  // Also when not every lane's thread could be started.
  ~State() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
      failed = true;
    }
    changed.notify_all();
    for (auto& [which, lane] : lanes) {
      if (lane->thread.joinable()) lane->thread.join();
    }
  }
};

Lanes::Lanes(const program::Program& program, std::function<void(size_t)> call)
    : state_(new State{program, std::move(call)}) {
  State& s = *state_;
  for (size_t n = 0; n < program.instructions.size(); ++n) {
    auto& lane = s.lanes[program::thread_of(program.instructions[n].lane)];
    if (!lane) lane = std::make_unique<State::Lane>();
    s.place.emplace_back(lane.get(), static_cast<int64_t>(lane->list.size()));
    lane->list.push_back(n);
  }
  for (auto& [which, lane] : s.lanes) {
    if (which == program::Lane::compute) continue;
    lane->thread = std::thread([&s, one = lane.get()] { s.serve(*one); });
  }
}

Lanes::~Lanes() = default;

void Lanes::run() {
  State& s = *state_;
  if (s.error) std::rethrow_exception(s.error);
  int64_t step = 0;
  {
    const std::lock_guard lock(s.mutex);
    step = s.steps++;
  }
  s.changed.notify_all();
  s.walk(*s.lanes.at(program::Lane::compute), step);
  for (auto& [which, lane] : s.lanes) {
    const int64_t enough = (step + 1) * static_cast<int64_t>(lane->list.size());
    s.wait([&, one = lane.get()] { return one->done.load() >= enough || s.failed.load(); });
  }
  if (s.failed.load()) std::rethrow_exception(s.error);
}

}  // namespace lockstep::run
