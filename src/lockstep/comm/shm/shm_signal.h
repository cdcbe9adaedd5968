// A signal: a count in shared memory that one rank raises and others wait for.
//
// Who waits spins first, because the others are usually only microseconds away, then sleeps in the kernel (a
// futex that is not private: it works between processes). How long spinning pays is learnt from how waits
// went; where there are more ranks than cores it hardly ever does.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep::comm {

struct alignas(128) Signal {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;

  void raise();  // by one; everything written before is seen by who saw the new value
  // Counts wrap around: "at least" is a difference.
  bool reached(uint32_t target) const {
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

class Patience {
 public:
  explicit Patience(bool crowded);                   // more ranks than cores: hardly any spinning
  bool spin(const Signal& signal, uint32_t target);  // whether it was reached meanwhile
  // Sleeps until the value changes, at most `most_ns`; may wake for nothing.
  static void sleep(Signal& signal, uint32_t target, int64_t most_ns);

 private:
  int least_, most_, spins_;
  int in_vain_ = 0;
};

}  // namespace lockstep::comm
