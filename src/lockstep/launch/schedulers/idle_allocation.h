// What a batch job was given and a plain `lockstep train` in its script does not use.
//
// Schedulers start a job's script once. srun, mpirun or pbsdsh start tasks on all nodes; without them a run
// is one rank, or those of one node, and the rest of the allocation idles: that is said, never guessed.
#pragma once

#include <string>

#include "lockstep/launch/schedulers/environment.h"

namespace lockstep::launch {

// A line for the console, of a process that no scheduler started as a task and that starts so many ranks on
// this node alone; empty: nothing idles.
std::string idle_allocation(const Environment& environment, int ranks,
                            const FileReader& read = read_small_file);

}  // namespace lockstep::launch
