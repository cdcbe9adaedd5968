// How fast the ranks of this host reach each other, as `lockstep bench collectives` measures it.
#pragma once

#include <optional>

#include "lockstep/device/device.h"
#include "lockstep/plan/machine.h"

namespace lockstep::cli {

// Nothing where this host has one GPU only, or where its ranks could not be started, which is said.
std::optional<plan::Link> measured_links(device::Kind kind);

}  // namespace lockstep::cli
