// Programs of others under `lockstep launch` on this host, for `lockstep top`: every rank as it looks from
// outside.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/device/gpu_now.h"
#include "lockstep/see/foreign_now.h"
#include "lockstep/terminal/terminal.h"
#include "lockstep/watch/launch_status.h"

namespace lockstep::cli {

struct LaunchLook {
  watch::LaunchStatus launch;
  std::vector<see::ForeignRankNow> ranks;
};

// What is launched on this host by this user; with a number, by that launcher alone.
std::vector<watch::LaunchStatus> launches_here(int launcher = 0);

std::string launch_view(const LaunchLook& look, const std::vector<device::GpuNow>& gpus,
                        const terminal::Terminal& screen);
nlohmann::json launch_json(const LaunchLook& look, const std::vector<device::GpuNow>& gpus);

}  // namespace lockstep::cli
