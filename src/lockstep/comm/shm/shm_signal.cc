#include "lockstep/comm/shm/shm_signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace lockstep::comm {
namespace {

// About 0.5, 3 and 50 us. Two ranks that sleep for every few microseconds keep each other asleep, so without
// a crowd there is always some spinning.
constexpr int kCrowdedSpins = 32, kFewestSpins = 256, kMostSpins = 1 << 12;
constexpr int kTryAgain = 32;  // waits in vain between two long ones

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void Signal::raise() {
  // Sequential order between this and sleep(): either we see the sleeper or it sees the new value.
  value.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) futex(value, FUTEX_WAKE, INT_MAX, nullptr);
}

Patience::Patience(bool crowded)
    : least_(crowded ? kCrowdedSpins : kFewestSpins),
      most_(crowded ? kCrowdedSpins : kMostSpins),
      spins_(most_) {}

bool Patience::spin(const Signal& signal, uint32_t target) {
  const bool long_try = in_vain_ >= kTryAgain;
  const int limit = long_try ? most_ : spins_;
  for (int i = 0; i < limit; ++i) {
    if (signal.reached(target)) {
      if (long_try) spins_ = most_;
      in_vain_ = 0;
      return true;
    }
    pause_cpu();
  }
  spins_ = std::max(spins_ / 2, least_);
  in_vain_ = long_try ? 0 : in_vain_ + 1;
  return false;
}

void Patience::sleep(Signal& signal, uint32_t target, int64_t most_ns) {
  signal.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = signal.value.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - target) < 0) {
    const timespec timeout{most_ns / 1'000'000'000, most_ns % 1'000'000'000};
    futex(signal.value, FUTEX_WAIT, seen, &timeout);
  }
  signal.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace lockstep::comm
