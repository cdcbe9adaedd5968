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
#include "lockstep/run/executor/ceilings.h"

namespace lockstep::run {

struct Profile {
  int64_t steps = 0;
  int64_t first_step = 1;  // of the run
  // A tag is step * instructions + instruction. On the CPU there are only instructions, named by their tag.
  std::vector<device::Traced> ran;
  int64_t by_call = 0;  // the first so many steps ran call by call, the others as graphs
};

// Gives what ran as a part of a graph the tags of the first step, which ran call by call: the kernels of a
// graph have none of their own. The n-th of a name there is the n-th of that name in every step.
void name_graphs(Profile& profile, int64_t instructions);

// Nanoseconds of this rank's clock at which its first call began.
int64_t began_ns(const Profile& profile);

// Chrome's trace event format, microseconds since `zero_ns`; a rank is a process there.
std::string trace_json(const Profile& profile, const program::Program& program, const model::Model& model,
                       int rank, int64_t zero_ns);
// Several of these in one. Texts that are no traces are left out.
std::string join_traces(const std::vector<std::string>& traces);

// Instructions of one kind together: time in a step, share, what the ceilings would allow, how far from it.
std::string profile_table(const Profile& profile, const program::Program& program, const model::Model& model,
                          const Ceilings& ceilings, size_t width);

}  // namespace lockstep::run
