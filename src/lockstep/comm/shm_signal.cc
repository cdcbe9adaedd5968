#include "lockstep/comm/shm_signal.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace lockstep::comm {
namespace {

constexpr int kFewestSpins = 64, kMostSpins = 1 << 14;
constexpr int64_t kWorthSpinningNs = 100'000;  // about what a sleep and a wake-up cost on a busy machine

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

Patience::Patience(bool crowded) : crowded_(crowded), spins_(crowded ? kFewestSpins : kMostSpins) {}

bool Patience::spin(const Signal& signal, uint32_t target) {
  for (int i = 0; i < spins_; ++i) {
    if (signal.reached(target)) return true;
    pause_cpu();
  }
  if (crowded_) ::sched_yield();  // the one we wait for may need this very core
  return signal.reached(target);
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

void Patience::learn(int64_t waited_ns) {
  if (crowded_) return;
  spins_ =
      waited_ns < kWorthSpinningNs ? std::min(spins_ * 2, kMostSpins) : std::max(spins_ / 2, kFewestSpins);
}

}  // namespace lockstep::comm
