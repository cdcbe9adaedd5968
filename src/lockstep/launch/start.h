// What a process that was asked to train is: alone, a launcher, or a rank.
//
//   alone       one rank and nothing that says otherwise: it starts at once
//   launcher    --nproc (also 1), --nnodes or a scheduler asks for it: it runs the node's launcher with this
//               same program as every rank, and its exit code is the run's
//   rank        the environment of a launcher says who it is: it connects to the store
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/store/store.h"
#include "lockstep/comm/world.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/rendezvous/run_store.h"

namespace lockstep::launch {

struct Start {
  std::optional<int> exit_code;        // it was a launcher, and the run is over
  comm::WorldOptions options;          // a rank's seat
  std::unique_ptr<comm::Store> store;  // null: alone
};

// What the command knows of its own ranks.
struct RankNeeds {
  std::function<void(int ranks)> fits = {};  // asked before any is started; throws what is wrong with so many
  bool one_by_default = false;               // without --nproc: one rank, whatever GPUs there are
  std::string run_folder = {};               // as in AgentJob
  double hang_seconds = 0, notice_seconds = 0;
  bool from_scratch = false;
  int replicas = 0;
  // Instead of starting anything: told the seat that the first of the ranks would have; gives the exit code.
  std::function<int(const comm::Seat& first)> instead = {};
};

// ConfigError 538: an environment that is half set.
Start start(Words words, const std::string& log_folder, Say say, const RankNeeds& needs = {});

// For a program of one's own: the world that a launcher (`lockstep launch`, torchrun) put it in, or a world
// of one.
std::unique_ptr<comm::World> join();

// `lockstep launch`: runs any program on this node's ranks and returns the run's exit code.
int launch_program(Words words, const std::vector<std::string>& program, Say say);

// This same program with these words; never the wrapper script, which may set things up.
std::vector<std::string> own_command(const std::vector<std::string>& argv);
std::vector<std::string> this_command();  // with those that it was started with
std::string rank_prefix(int round);       // of the ranks' keys in the store

// The seat in torchrun's environment (RANK, WORLD_SIZE, ...), if there is one. ConfigError 538: half set, or
// not numbers.
std::optional<comm::Seat> seat_from_environment(const Variable& variable);

}  // namespace lockstep::launch
