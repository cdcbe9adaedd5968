// What the norms of a CPU share.
#pragma once

#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

// A norm's weight, with what is added to all of them where a family stores them so (Gemma: 1). Without an
// offset nothing is added: the compiler would round sums in another order, and bits would change.
template <bool kShifted, class T>
LS_INLINE float weight_of(T weight, float offset) {
  return kShifted ? widen(weight) + offset : widen(weight);
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
