// Which processors a rank runs on: --numa-binding, and how many there are to share.
#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

// How many of the processors that this process may use each of `local_world` ranks gets. A scheduler that has
// bound this task has distributed them already.
int processors_per_rank(int local_world, bool one_task_a_rank);

// The processors of a rank; empty: all, as it is without --numa-binding.
std::vector<int> cpus_of_rank(const std::string& binding, int local_rank, int local_world);

}  // namespace lockstep::launch
