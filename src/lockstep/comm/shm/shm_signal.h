// A signal: a count in shared memory that one rank raises and others wait for.
//
// Who waits spins first, because the others are usually only microseconds away, then sleeps in the kernel (a
// futex that is not private: it works between processes). How long spinning pays is learned (base/spin.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep::comm {

// Counts wrap around: "at least" is a difference.
inline bool at_least(uint32_t count, uint32_t target) { return static_cast<int32_t>(count - target) >= 0; }

struct alignas(128) Signal {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;

  void raise();  // by one; everything written before is seen by who saw the new value
  // The same of several ranks that meet: only the one that completes `target` wakes those who sleep for it.
  void arrive(uint32_t target);
  // Until the value changes, at most `most_ns`; may wake for nothing.
  void sleep(uint32_t target, int64_t most_ns);
  bool reached(uint32_t target) const { return at_least(value.load(std::memory_order_acquire), target); }
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace lockstep::comm
