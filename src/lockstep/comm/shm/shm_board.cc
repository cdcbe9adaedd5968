#include "lockstep/comm/shm/shm_board.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/store/store_timeout.h"

namespace lockstep::comm {
namespace {

constexpr int64_t kLookNs = 200'000'000;  // how often a sleeper looks whether the others still live

// Two ranks that sleep for every few microseconds keep each other asleep, so without a crowd there is always
// some spinning; with one there is hardly any.
constexpr base::Spin::Looks kUsual{.least = 256, .most = 4096}, kCrowded{.least = 32, .most = 32};

base::Spin::Looks looks_of(int ranks) {
  cpu_set_t cores;
  const bool crowded = ::sched_getaffinity(0, sizeof(cores), &cores) == 0 && ranks > CPU_COUNT(&cores);
  return crowded ? kCrowded : kUsual;
}

}  // namespace

int64_t Board::bytes_for(int size) {
  return SharedSegment::kHeaderBytes + size * static_cast<int64_t>(sizeof(RankPages)) +
         static_cast<int64_t>(size) * size * static_cast<int64_t>(sizeof(Channel));
}

Board::Board(SharedSegment segment, Options options)
    : segment_(std::move(segment)),
      options_(std::move(options)),
      pages_(reinterpret_cast<RankPages*>(segment_.data() + SharedSegment::kHeaderBytes)),
      channels_(reinterpret_cast<Channel*>(pages_ + size())),
      spin_(looks_of(size())) {
  LS_ASSERT(segment_.bytes() == bytes_for(size()));
}

Board::~Board() { pages_[rank()].presence.store(Presence::left, std::memory_order_release); }

void Board::join(const SegmentAddress& arena) {
  pages_[rank()].arena = arena;
  pages_[rank()].presence.store(Presence::here, std::memory_order_release);
  begin();
  barrier();
}

bool Board::reaches(const Signal& signal, uint32_t target) {
  return spin_.until([&] { return signal.reached(target); });
}

void Board::barrier() {
  const uint32_t times = ++barriers_, everyone = times * static_cast<uint32_t>(size());
  Signal& met = pages_[0].met;
  pages_[rank()].barriers.store(times, std::memory_order_release);
  met.arrive(everyone);
  if (reaches(met, everyone)) return;
  std::vector<Awaited> others;
  for (int q = 0; q < size(); ++q) {
    if (q != rank()) others.push_back({q, &pages_[q].barriers});
  }
  wait_slowly({.signal = met, .target = everyone, .awaited = std::move(others), .times = times});
}

void Board::wait_for(Signal& signal, uint32_t target, int peer) {
  if (reaches(signal, target)) return;
  wait_slowly({.signal = signal, .target = target, .awaited = {{peer, &signal.value}}, .times = target});
}

void Board::wait_slowly(const LongWait& wait) {
  const int64_t begin = base::monotonic_ns();
  if (deadline_ns_ == 0) {
    deadline_ns_ =
        begin + std::chrono::duration_cast<std::chrono::nanoseconds>(sane_timeout(options_.timeout)).count();
  }
  int64_t now = begin, looked = begin;
  for (; !wait.signal.reached(wait.target); now = base::monotonic_ns()) {
    if (now - looked >= kLookNs || now >= deadline_ns_) {
      look_after(wait);
      looked = now;
    }
    wait.signal.sleep(wait.target, std::min(kLookNs, std::max<int64_t>(deadline_ns_ - now, 1)));
  }
}

void Board::look_after(const LongWait& wait) {
  std::vector<std::string> dead, left, late;
  for (const auto& [q, came] : wait.awaited) {
    const Presence presence = pages_[q].presence.load(std::memory_order_acquire);
    const SegmentAddress& home = pages_[q].arena;
    const bool died = presence != Presence::absent && process_start(home.pid) != home.process_start;
    // Looked at last: who came and then ended in peace is not missing.
    if (at_least(came->load(std::memory_order_acquire), wait.times)) continue;
    if (died) {
      dead.push_back(fmt::format("{} (process {}) has died", name(q), home.pid));
    } else if (presence == Presence::left) {
      left.push_back(fmt::format("{} has left the group", name(q)));
    } else {
      late.push_back(name(q));
    }
  }
  if (!dead.empty()) throw CallFailed{fmt::format("{}; see its log", fmt::join(dead, ", "))};
  if (!left.empty()) {
    throw CallFailed{fmt::format("{} after a failure; see its log", fmt::join(left, ", "))};
  }
  if (!late.empty() && base::monotonic_ns() >= deadline_ns_) {
    throw CallFailed{fmt::format("{} did not arrive within {:g} s; see what it is doing, or allow more time",
                                 fmt::join(late, ", "),
                                 static_cast<double>(options_.timeout.count()) / 1000)};
  }
}

std::string Board::name(int q) const { return fmt::format("rank {}", world_rank(q)); }

}  // namespace lockstep::comm
