// What this machine's kernels reach, measured in about a minute: the rates that plan/roofline.h prices with.
//
// Products and attention are timed at two sizes each, from which the rate of large ones and what small ones
// lose follow; passes over memory by adding two arrays; launches by the smallest kernel. Nothing of a whole
// step is timed, so that a forecast made with it is a forecast.
#pragma once

#include <functional>
#include <string>

#include "lockstep/device/device.h"
#include "lockstep/plan/machine.h"

namespace lockstep::run {

// `say` hears what is being measured. device::OutOfMemory where a few hundred MB (2 GiB on a GPU) are
// missing.
plan::Machine measure_machine(device::Device& device, const std::function<void(const std::string&)>& say);

}  // namespace lockstep::run
