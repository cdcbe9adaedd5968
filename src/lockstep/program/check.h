// check(): proves a program before step 0; place(): gives every buffer its place in memory; order(): says
// which instructions of one lane wait for which of another.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/program/program.h"

namespace lockstep::program {

// Throws base::Bug naming the instruction when the list is not sound: a value read before it is written,
// a gradient that misses a slice or is folded out of order, an update before the norm, an update of a
// block that got no gradient; and, once buffers have their places, a write to memory that something still
// needs.
void check(const Program& program, const model::Model& model);

struct Lifetime {
  int first = -1, last = -1;  // instruction indices, inclusive; persistent buffers: the whole list
};
std::vector<Lifetime> lifetimes(const Program& program);

struct MemoryPlan {
  int64_t persistent_bytes = 0;  // arena of what lives across steps
  int64_t transient_bytes = 0;   // arena of what lives inside a step: the placement's height
  int64_t live_bytes = 0;        // the most that is alive at once: no placement can be lower
  int64_t host_bytes = 0;        // of what lives across steps in the host's memory
  int64_t external_bytes = 0;    // the most that AutogradBlock holds at once
  int64_t peak_bytes() const { return persistent_bytes + transient_bytes + external_bytes; }
  int peak_instruction = 0;  // where live_bytes is reached
  std::map<BufferKind, int64_t> persistent_by_kind;
};

// Sets offset of every buffer. Alignment 256 bytes.
MemoryPlan place(Program& program);

// Sets what each instruction waits for on other lanes, once buffers have their places.
void order(Program& program);
// The lane whose thread or stream runs it: host work is done by the compute lane.
Lane thread_of(Lane lane);

}  // namespace lockstep::program
