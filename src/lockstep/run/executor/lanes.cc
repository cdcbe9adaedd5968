#include "lockstep/run/executor/lanes.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "lockstep/base/spin.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/program/check.h"

namespace lockstep::run {

namespace {

// Some tens of microseconds, as long as that helps: other ranks may need the core.
constexpr base::Spin::Looks kLooks{.least = 16, .most = 2000};

}  // namespace

std::vector<bool> taken_along(const program::Program& program) {
  constexpr int kNone = -1;
  const auto& list = program.instructions;
  std::vector<bool> taken(list.size());
  int last = kNone;
  for (size_t n = 0; n < list.size(); ++n) {
    if (program::thread_of(list[n].lane) != program::Lane::compute) continue;
    const auto found = std::ranges::find_if(list[n].waits, [&](int other) {
      const auto& waits = list[static_cast<size_t>(other)].waits;
      return last != kNone && std::ranges::find(waits, last) != waits.end();
    });
    if (found != list[n].waits.end()) taken[static_cast<size_t>(*found)] = true;
    last = static_cast<int>(n);
  }
  return taken;
}

struct Lanes::State {
  static constexpr int64_t kNobody = INT64_MAX;

  const program::Program& program;
  std::function<void(size_t)> call;
  struct Lane {
    std::vector<size_t> list;              // instructions
    std::atomic<int64_t> done{0};          // calls finished, in all steps together
    std::atomic<int64_t> wanted{kNobody};  // the fewest of them that a sleeper waits for; set under the mutex
    std::condition_variable changed;       // for these sleepers
    base::Spin spin{kLooks};               // of the lane's own waits
    std::thread thread;
  };
  std::map<program::Lane, std::unique_ptr<Lane>> lanes;
  struct Place {
    Lane* lane;
    int64_t before;          // of that lane
    std::vector<int> waits;  // for these of others
  };
  std::vector<Place> places;  // of the instructions
  std::mutex mutex;
  std::condition_variable begun;
  std::atomic<bool> failed{false}, stopping{false};
  std::exception_ptr error;
  int64_t steps = 0;  // begun; written under the mutex

  // `lane`'s thread waits until so many calls of another lane are done, or one has failed.
  void wait(Lane& lane, Lane& other, int64_t enough) {
    const auto ready = [&] { return other.done.load() >= enough || failed.load(); };
    if (lane.spin.until(ready)) return;
    std::unique_lock lock(mutex);
    for (;;) {
      other.wanted = std::min(other.wanted.load(), enough);
      if (ready()) return;  // looked at after saying what is wanted: tell() sees one or we see the other
      other.changed.wait(lock);
    }
  }
  void tell(Lane& lane) {
    if (lane.done.load() < lane.wanted.load()) return;
    {
      const std::lock_guard lock(mutex);
      lane.wanted = kNobody;
    }
    lane.changed.notify_all();
  }
  void wake_all() {
    begun.notify_all();
    for (auto& [which, lane] : lanes) lane->changed.notify_all();
  }

  void fail() {
    const std::lock_guard lock(mutex);
    if (!error) error = std::current_exception();
    failed = true;
    wake_all();
  }

  void walk(Lane& lane, int64_t step) {
    try {
      for (const size_t n : lane.list) {
        for (const int other : places[n].waits) {
          const Place& it = places[static_cast<size_t>(other)];
          if (it.lane == &lane) continue;
          wait(lane, *it.lane, step * static_cast<int64_t>(it.lane->list.size()) + it.before + 1);
        }
        if (failed.load()) return;
        call(n);
        lane.done.fetch_add(1);
        tell(lane);
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
        begun.wait(lock, [&] { return steps > step || stopping; });
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
    wake_all();
    for (auto& [which, lane] : lanes) {
      if (lane->thread.joinable()) lane->thread.join();
    }
  }
};

Lanes::Lanes(const program::Program& program, std::function<void(size_t)> call)
    : state_(new State{program, std::move(call)}) {
  State& s = *state_;
  const std::vector<bool> taken = taken_along(program);
  std::map<program::Lane, size_t> last;  // of the program's lanes: their order holds, whoever carries it out
  for (size_t n = 0; n < program.instructions.size(); ++n) {
    const program::Instruction& i = program.instructions[n];
    const program::Lane own = program::thread_of(i.lane);
    auto& lane = s.lanes[taken[n] ? program::Lane::compute : own];
    if (!lane) lane = std::make_unique<State::Lane>();
    State::Place place{lane.get(), static_cast<int64_t>(lane->list.size()), i.waits};
    if (const auto earlier = last.find(own); earlier != last.end())
      place.waits.push_back(static_cast<int>(earlier->second));
    last[own] = n;
    s.places.push_back(std::move(place));
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
  s.begun.notify_all();
  State::Lane& compute = *s.lanes.at(program::Lane::compute);
  s.walk(compute, step);
  for (auto& [which, lane] : s.lanes)
    s.wait(compute, *lane, (step + 1) * static_cast<int64_t>(lane->list.size()));
  if (s.failed.load()) std::rethrow_exception(s.error);
}

}  // namespace lockstep::run
