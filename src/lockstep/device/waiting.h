// How the pool's threads wait for each other, chosen by what it costs on this machine at this moment.
//
// A thread that looks for news again and again sees it at once, but uses up its share of a core; then, where
// other programs run, it lies waiting with work in its hands. One that sleeps is put on a free core when it
// is woken, but late. Which is better depends on the others: one program beside two threads makes looking on
// twice as slow as sleeping, one program on every core makes sleeping twice as slow as looking on. So jobs
// are timed: as long as they take about what they take at best, threads look on for a moment; where they do
// not, each way is tried for some milliseconds, and the best is kept until it is time to try again.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::device {

// For how many nanoseconds a thread looks on before it sleeps.
struct Waiting {
  int64_t helper_ns = 0;  // for the next job
  int64_t caller_ns = 0;  // for the last item of this one
};
inline constexpr std::array<Waiting, 3> kWaitings = {{
    {50'000, 50'000},        // a moment: for a machine of one's own
    {0, 10'000},             // hardly
    {1'000'000, 1'000'000},  // on and on
}};

class WaitingChoice {
 public:
  const Waiting& now() const { return kWaitings[chosen_.load(std::memory_order_relaxed)]; }  // any thread

  void forget();  // all that was measured
  // By one thread at a time: a job that is known by its function and size took so long.
  void took(const void* function, int64_t items, int64_t nanoseconds);

 private:
  void end_window();
  struct Job {
    const void* function = nullptr;
    int64_t items = 0, best_ns = 0;
  };
  Job* find(const void* function, int64_t items);  // null: no room for another
  struct Tried {
    double slowdown = 0;  // against the best times of the same jobs
    int64_t at = -1;      // the window that said so; -1: none
  };
  std::atomic<size_t> chosen_{0};
  std::array<Job, 256> jobs_;
  std::array<Tried, kWaitings.size()> tried_;
  int64_t took_ns_ = 0, best_ns_ = 0;  // of this window
  int64_t window_ = 0;
};

}  // namespace lockstep::device
