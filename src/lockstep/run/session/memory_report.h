// Where the memory goes, and what would make it less.
#pragma once

#include <string>
#include <vector>

#include "lockstep/run/session/session.h"

namespace lockstep::run {

struct MemoryRow {
  std::string what;  // "activations: layer 3"
  int64_t bytes = 0;
  std::string use{};  // "activations", of rows that belong to one block
  int block = -1;
};

// At the moment of the peak: weights, gradients, optimizer, then activations by block, largest first.
std::vector<MemoryRow> memory_rows(const Plan& plan);
// For people: neighbouring blocks that hold the same are one row.
std::vector<MemoryRow> folded_memory_rows(const Plan& plan);

// Changes to the recipe that would need less, the largest saving first.
struct Remedy {
  std::string change;      // "memory.recompute=full"
  int64_t peak_bytes = 0;  // what it would need
  std::string price;       // "about a third more computation"
};
std::vector<Remedy> remedies(const Plan& plan);

// RunError 420: what was needed, what there is, what holds it, what to change.
[[noreturn]] void throw_out_of_memory(const Plan& plan, int64_t available_bytes);

}  // namespace lockstep::run
