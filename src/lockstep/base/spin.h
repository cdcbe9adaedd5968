// How long to look again and again for what another thread or process does, before sleeping: learned from how
// earlier waits went.
//
//     if (!spin_.until([&] { return done.load() >= enough; })) ... sleep
//
// Looking on is right where the other is microseconds away on another core, and wrong where it waits for this
// very core. Waits that were in vain halve the next ones, down to the least; now and then a long one tries
// whether times have changed. Used by one thread.
#pragma once

#include <algorithm>

namespace lockstep::base {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

class Spin {
 public:
  struct Looks {
    int least = 0, most = 0;  // each takes ten nanoseconds or some more
  };
  explicit Spin(Looks looks) : looks_(looks), now_(looks.most) {}

  template <class Ready>
  bool until(const Ready& ready) {
    const bool long_try = failed_ >= kTryAgain;
    for (int look = long_try ? looks_.most : now_; look > 0; --look) {
      if (ready()) {
        if (long_try) now_ = looks_.most;
        failed_ = 0;
        return true;
      }
      pause_cpu();
    }
    now_ = std::max(now_ / 2, looks_.least);
    failed_ = long_try ? 0 : failed_ + 1;
    return false;
  }

 private:
  static constexpr int kTryAgain = 32;  // waits in vain between two long ones
  Looks looks_;
  int now_, failed_ = 0;
};

}  // namespace lockstep::base
