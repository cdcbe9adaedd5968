#include "lockstep/plan/machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/plan/catalogue/catalogue.h"

namespace lockstep::plan {

Machine machine_named(const std::string& name) {
  if (const DeviceRow* row = catalogue().find_device(name)) return row->model;
  std::vector<std::string> names;
  for (const DeviceRow& row : catalogue().devices) names.push_back(row.name);
  throw base::ConfigError(
      181, fmt::format("unknown device {}; known are {}", base::quoted(name), base::join(names, ", ")));
}

Machine this_machine(device::Kind kind, const device::Properties& device, int ranks_here) {
  constexpr double kTera = 1e12, kGiga = 1e9;
  const double share = 1.0 / std::max(1, ranks_here);
  if (kind == device::Kind::cpu) {  // a core does about 50 billion multiplications and additions a second
    Machine machine = machine_named("laptop");
    const double cores = device::thread_count();  // of this rank
    machine.name = device.name;
    machine.flops_fp32 = cores * 0.1 * kTera;
    machine.flops_half = machine.flops_fp32 / 2;
    machine.memory_bytes_per_second = std::min(cores / share, 4.0) * 10 * kGiga * share;
    machine.memory_bytes = static_cast<int64_t>(static_cast<double>(device.free_bytes) * share);
    return machine;
  }
  // The longest name that the device's own contains: "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB".
  const DeviceRow* like = catalogue().find_device("A100");
  size_t length = 0;
  for (const DeviceRow& row : catalogue().devices) {
    if (row.maker != "nvidia" || row.name.size() <= length) continue;
    if (device.name.find(row.name) != std::string::npos) like = &row, length = row.name.size();
  }
  Machine machine = like->model;
  machine.name = device.name;
  if (device.peak_flops_bf16 > 0) machine.flops_half = device.peak_flops_bf16;
  if (device.peak_flops_fp32 > 0) machine.flops_fp32 = device.peak_flops_fp32;
  machine.memory_bytes = device.free_bytes;
  return machine;
}

Machine shared_by(Machine machine, device::Kind kind, int ranks_here) {
  if (kind != device::Kind::cpu || ranks_here <= 1) return machine;
  const double share = 1.0 / ranks_here;
  for (double* speed : {&machine.flops_fp32, &machine.flops_half, &machine.flops_fp8, &machine.flops_tf32,
                        &machine.memory_bytes_per_second})
    *speed *= share;
  machine.memory_bytes = static_cast<int64_t>(static_cast<double>(machine.memory_bytes) * share);
  return machine;
}

}  // namespace lockstep::plan
