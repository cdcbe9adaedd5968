// What the kernel says of a process at this moment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::see {

struct ProcessNow {
  char state = '?';  // R, S, D (waits for a disk), T (stopped), ...
  int parent = 0;
  double cpu_seconds = 0;  // used so far
  int64_t memory = 0;      // resident bytes
};

// Of a living process; none for one that has ended, or where /proc is missing.
std::optional<ProcessNow> process_now(int pid);

// The process and all below it: data loaders belong to the rank that started them.
std::vector<int> family_of(int pid);

}  // namespace lockstep::see
