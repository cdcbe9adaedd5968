#include "lockstep/comm/shm/shm_signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace lockstep::comm {
namespace {

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void Signal::raise() {
  // Sequential order between this and sleep(): either we see the sleeper or it sees the new value.
  value.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) futex(value, FUTEX_WAKE, INT_MAX, nullptr);
}

void Signal::arrive(uint32_t target) {
  const uint32_t before = value.fetch_add(1, std::memory_order_seq_cst);
  if (before + 1 == target && sleepers.load(std::memory_order_seq_cst) != 0)
    futex(value, FUTEX_WAKE, INT_MAX, nullptr);
}

void Signal::sleep(uint32_t target, int64_t most_ns) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = value.load(std::memory_order_seq_cst);
  if (!at_least(seen, target)) {
    const timespec timeout{most_ns / 1'000'000'000, most_ns % 1'000'000'000};
    futex(value, FUTEX_WAIT, seen, &timeout);
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace lockstep::comm
