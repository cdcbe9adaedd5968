// Binds what passes between tensor and context ranks inside a slice, and between pipeline stages.
#pragma once

#include "lockstep/run/executor/bind.h"

namespace lockstep::run {

// gather, reduce and exchange on the seams' lane.
std::function<void()> bind_seam(const BindContext& context, const program::Instruction& i,
                                device::Stream stream);

// send and recv.
std::function<void()> bind_link(const BindContext& context, const std::vector<model::BlockLayout>& layouts,
                                const program::Instruction& i, device::Stream stream);

}  // namespace lockstep::run
