// How the CPU kernels share work among threads: the pool of device/thread_pool.h.
//
// What is cut depends on the shape alone, so results have the same bits for any number of threads; a
// piece of work too small to pay for waking the others stays on the calling thread.
#pragma once

#include "lockstep/device/thread_pool.h"
#include "lockstep/kernels/vector_math.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

constexpr int64_t kSerialBelow = 16384;  // elements; about the microseconds that a parallel region costs
constexpr int64_t kBlock = 8192;         // elements: 32 KiB of fp32, half of a first-level cache

LS_INLINE int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
LS_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
LS_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// body(item, lane) for every item; the calling thread alone when it is not worth waking the others.
template <class Body>
LS_INLINE void share(int64_t items, bool worth_it, const Body& body) {
  device::run_items(
      items, worth_it ? device::thread_count() : 1, &body,
      [](const void* context, int64_t item, int lane) { (*static_cast<const Body*>(context))(item, lane); });
}

// body(begin, end) over consecutive runs of [0, count).
template <class Body>
LS_INLINE void for_blocks(int64_t count, const Body& body) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  share(blocks, count >= kSerialBelow,
        [&](int64_t block, int) { body(block * kBlock, smaller(count, (block + 1) * kBlock)); });
}

// body(item) for every item; `elements` is the work of one of them.
template <class Body>
LS_INLINE void for_items(int64_t items, int64_t elements, const Body& body) {
  // Small items go out in groups, so that handing them out costs little.
  const int64_t group = larger(1, smaller(kBlock / larger(1, elements), items));
  share((items + group - 1) / group, items * elements >= kSerialBelow, [&](int64_t g, int) {
    for (int64_t item = g * group; item < smaller(items, (g + 1) * group); ++item) body(item);
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
