#include "lockstep/launch/process/binding.h"

#include <unistd.h>

#include <algorithm>

#include "lockstep/device/thread_pool.h"
#include "lockstep/device/topology/affinity.h"
#include "lockstep/device/topology/topology_read.h"

namespace lockstep::launch {

int processors_per_rank(int local_world, bool one_task_a_rank) {
  const int usable = device::usable_processors();
  const bool bound = one_task_a_rank && usable < static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, bound ? usable : usable / std::max(1, local_world));
}

std::vector<int> cpus_of_rank(const std::string& binding, int local_rank, int local_world) {
  if (binding.empty()) return {};
  return device::cpus_for(device::parse_binding(binding), local_rank, local_world, device::read_topology());
}

}  // namespace lockstep::launch
