// How a ring lies in its file: a header, then slots of two cache lines. Internal to ring.cc and its tests.
//
// Every word is a lock-free atomic of eight bytes, little-endian like every machine Lockstep runs on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/ring.h"

namespace lockstep::base {

constexpr uint64_t kRingMagic = 0x3130474E4952534C;  // "LSRING01"
constexpr uint64_t kMostRingEntries = 1 << 24;

struct alignas(128) RingWriter::Header {
  uint64_t magic;
  uint64_t slot_bytes;
  uint64_t capacity;
  int32_t pid, rank;
  uint64_t boot, birth_ticks;  // of that process; 0 where an older version wrote it
};

struct alignas(128) RingWriter::Slot {
  // Even: whole. Odd: being filled. 0: never used.
  std::atomic<uint64_t> version;
  std::atomic<uint64_t> ticket, step, instruction_and_op, block_and_slice, group, sequence, bytes,
      enqueued_ns;
  // These two are set later, each in one store, and are no part of the version.
  std::atomic<uint64_t> started_ns, finished_ns;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace lockstep::base
