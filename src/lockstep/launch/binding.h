// Which processors a rank runs on: --numa-binding, and how many there are to share.
#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

int usable_processors();  // that this process may run on

// The processors of a rank; empty: all, as it is without --numa-binding.
std::vector<int> cpus_of_rank(const std::string& binding, int local_rank, int local_world);

}  // namespace lockstep::launch
