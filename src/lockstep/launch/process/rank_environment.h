// What a rank is told through its environment: torchrun's variables, and for our own program also where the
// store is.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/rendezvous/round_state.h"

namespace lockstep::launch {

struct RankFacts {
  const Options* options = nullptr;
  const State* state = nullptr;
  const NodePlace* place = nullptr;
  comm::Seat seat;
  std::string error_file;
  std::string flight_folder = {};  // of another program, with --hang-timeout: for PyTorch's flight recorder
  bool own_program = false;
  std::string store_endpoint;   // own program
  int processors = 1;           // for each rank of our own, for OMP_NUM_THREADS
  bool has_memory = false;      // own program: kMemoryDescriptor is open
  int64_t launched_millis = 0;  // when the launcher began, Unix time
};

// `base` is the launcher's own environment. A foreign program hosts PyTorch's own store on its rank 0, so it
// is told not to look for the launcher's.
std::vector<std::string> rank_environment(std::vector<std::string> base, const RankFacts& facts);

}  // namespace lockstep::launch
