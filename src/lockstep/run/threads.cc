#include "lockstep/run/threads.h"

#include <sched.h>

#include <cstdlib>

// libgomp comes with LibTorch; its header does not.
extern "C" {
void omp_set_num_threads(int);
int omp_get_max_threads(void);
}

namespace lockstep::run {

void set_threads(const base::AutoInt& wish) {
  if (!wish.is_auto) {
    omp_set_num_threads(static_cast<int>(wish.value));
  } else if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof(cores), &cores) == 0) omp_set_num_threads(CPU_COUNT(&cores));
  }
}

int thread_count() { return omp_get_max_threads(); }

}  // namespace lockstep::run
