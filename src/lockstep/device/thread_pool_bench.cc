// Jobs like those of a small model's step, alone and beside other programs: what two threads are worth.
#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <vector>

#include "lockstep/device/thread_pool.h"

namespace lockstep::device {
namespace {

constexpr int kJobs = 100, kItems = 8, kItemRounds = 13'000, kGapRounds = 5'000;

void compute(int rounds) {
  double x = 1;
  for (int k = 0; k < rounds; ++k) benchmark::DoNotOptimize(x = x * 1.0000001 + 1e-9);
}

// Programs that want a core each, for as long as this lives.
class Neighbours {
 public:
  explicit Neighbours(int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (true) compute(1'000'000);
      }
      children_.push_back(child);
    }
  }
  ~Neighbours() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }

 private:
  std::vector<pid_t> children_;
};

void step_of_jobs(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  set_thread_count(1);  // a fork takes no thread along
  const Neighbours neighbours(state.range(1));
  set_thread_count(threads);
  for (auto _ : state) {
    for (int job = 0; job < kJobs; ++job) {
      run_items(kItems, threads, [](int64_t, int) { compute(kItemRounds); });
      compute(kGapRounds);
    }
  }
  set_thread_count(0);
}
BENCHMARK(step_of_jobs)
    ->ArgNames({"threads", "neighbours"})
    ->ArgsProduct({{1, 2}, {0, 1, 2, 4}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(2);

}  // namespace
}  // namespace lockstep::device
