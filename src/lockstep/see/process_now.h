// What the kernel says of a process at this moment.
#pragma once

#include <chrono>
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

// Of all its threads so far, in seconds: how long they had a processor, and how long they wanted one and
// waited for it. Zeros where the kernel does not say.
struct ProcessorTime {
  double used = 0, waited = 0;
};
ProcessorTime processor_time(int pid);

// What part of the time that these processes want processors they wait for them, measured for so long.
double waiting_for_processors(const std::vector<int>& pids, std::chrono::milliseconds measured);

// The process and all below it: data loaders belong to the rank that started them.
std::vector<int> family_of(int pid);

}  // namespace lockstep::see
