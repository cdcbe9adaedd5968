// CPU threads of the compute lane: OpenMP's, shared with the matrix products.
#pragma once

#include "lockstep/base/recipe.h"

namespace lockstep::run {

// auto: OMP_NUM_THREADS when set, else every core this process may run on.
void set_threads(const base::AutoInt& wish);
int thread_count();

}  // namespace lockstep::run
