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

bool more_than_cores(int ranks) {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof(cores), &cores) == 0 && ranks > CPU_COUNT(&cores);
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
      patience_(more_than_cores(size())) {
  LS_ASSERT(segment_.bytes() == bytes_for(size()));
}

Board::~Board() { pages_[rank()].presence.store(Presence::left, std::memory_order_release); }

void Board::join(const SegmentAddress& arena) {
  pages_[rank()].arena = arena;
  pages_[rank()].presence.store(Presence::here, std::memory_order_release);
  begin();
  barrier();
}

void Board::barrier() {
  const uint32_t target = ++barriers_;
  pages_[rank()].arrived.raise();
  std::vector<Awaited> late;
  for (int q = 0; q < size(); ++q) {
    if (q != rank() && !patience_.spin(pages_[q].arrived, target)) late.push_back({q, &pages_[q].arrived});
  }
  if (!late.empty()) wait_slowly(late, target);
}

void Board::wait_for(Signal& signal, uint32_t target, int peer) {
  if (!patience_.spin(signal, target)) wait_slowly({{peer, &signal}}, target);
}

void Board::wait_slowly(const std::vector<Awaited>& awaited, uint32_t target) {
  const int64_t begin = base::monotonic_ns();
  if (deadline_ns_ == 0) {
    deadline_ns_ =
        begin + std::chrono::duration_cast<std::chrono::nanoseconds>(sane_timeout(options_.timeout)).count();
  }
  int64_t now = begin, looked = begin;
  for (const auto& [rank, signal] : awaited) {
    for (; !signal->reached(target); now = base::monotonic_ns()) {
      if (now - looked >= kLookNs || now >= deadline_ns_) {
        look_after(awaited, target);
        looked = now;
      }
      Patience::sleep(*signal, target, std::min(kLookNs, std::max<int64_t>(deadline_ns_ - now, 1)));
    }
  }
}

void Board::look_after(const std::vector<Awaited>& awaited, uint32_t target) {
  std::vector<std::string> dead, left, late;
  for (const auto& [q, signal] : awaited) {
    const Presence presence = pages_[q].presence.load(std::memory_order_acquire);
    const SegmentAddress& home = pages_[q].arena;
    const bool died = presence != Presence::absent && process_start(home.pid) != home.process_start;
    if (signal->reached(target)) continue;  // looked at last: who came and then ended in peace is not missing
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
