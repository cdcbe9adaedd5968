// What ran in some steps, instruction by instruction: `lockstep train --profile 10:12`.
//
// The executor collects it (start_profile, stop_profile); here it becomes a trace for Perfetto or
// chrome://tracing, whose names are the program's instructions with the GPU's kernels under them, and a
// table.
#pragma once

#include <string>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/model/block.h"
#include "lockstep/program/program.h"
#include "lockstep/run/ceilings.h"

namespace lockstep::run {

struct Profile {
  int64_t steps = 0;
  // A tag is step * instructions + instruction. On the CPU there are only instructions, named by their tag.
  std::vector<device::Traced> ran;
};

// Chrome's trace event format, microseconds.
std::string trace_json(const Profile& profile, const program::Program& program, const model::Model& model);

// Instructions of one kind together: time in a step, share, what the ceilings would allow, how far from it.
std::string profile_table(const Profile& profile, const program::Program& program, const model::Model& model,
                          const Ceilings& ceilings, size_t width);

}  // namespace lockstep::run
