// The GPUs and the network of this machine in `lockstep top`: a table, warnings, JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/device/gpu_now.h"
#include "lockstep/device/network_now.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

std::string gpu_table(const std::vector<device::GpuNow>& gpus, const terminal::Terminal& screen);
std::vector<std::string> gpu_warnings(const std::vector<device::GpuNow>& gpus, bool trains);
nlohmann::json gpus_json(const std::vector<device::GpuNow>& gpus, bool trains);

// "network  eth0 1.2 GiB/s out, 1.1 GiB/s in of 12 GiB/s"; empty: nothing moves.
std::string network_line(const std::vector<device::LinkNow>& links);
nlohmann::json network_json(const std::vector<device::LinkNow>& links);

}  // namespace lockstep::cli
