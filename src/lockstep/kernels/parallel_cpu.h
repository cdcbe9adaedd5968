// How the CPU kernels share work among threads: OpenMP, on the pool that MKL uses as well.
//
// What is cut depends on the shape alone, so results have the same bits for any number of threads; a
// piece of work too small to pay for waking the others stays on the calling thread.
#pragma once

#include "lockstep/kernels/vector_math.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

constexpr int64_t kSerialBelow = 16384;  // elements; about the microseconds that a parallel region costs
constexpr int64_t kBlock = 8192;         // elements: 32 KiB of fp32, half of a first-level cache

LS_INLINE int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
LS_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
LS_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// body(begin, end) over consecutive runs of [0, count).
template <class Body>
LS_INLINE void for_blocks(int64_t count, const Body& body) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(static) if (count >= kSerialBelow)
  for (int64_t block = 0; block < blocks; ++block) {
    body(block * kBlock, smaller(count, (block + 1) * kBlock));
  }
}

// body(item) for every item; `elements` is the work of one of them.
template <class Body>
LS_INLINE void for_items(int64_t items, int64_t elements, const Body& body) {
#pragma omp parallel for schedule(static) if (items > 1 && items * elements >= kSerialBelow)
  for (int64_t item = 0; item < items; ++item) body(item);
}

// The same for items of uneven work.
template <class Body>
LS_INLINE void for_uneven_items(int64_t items, int64_t elements, const Body& body) {
#pragma omp parallel for schedule(dynamic) if (items > 1 && items * elements >= kSerialBelow)
  for (int64_t item = 0; item < items; ++item) body(item);
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
