// What the nodes of a run agree on, as data: who is in it, with which ranks, and what is to be done now.
//
// The leader (the node that holds the store) writes State; every node reads it and follows. Each start of all
// ranks is a round; a restart is a new round, in which nodes may have gone or come.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/launch/failure.h"

namespace lockstep::launch {

// How a node introduces itself.
struct NodeCard {
  std::string token;  // unique to this launcher
  std::string host, address, role = "default";
  int pid = 0;
  int wanted = -1;               // its node number, when the user gave one
  bool trains = false;           // `lockstep train`; else `lockstep launch` with a program of the user's
  bool one_task_a_rank = false;  // a scheduler's task: the launcher of rank `wanted`, started only once
  std::string machine;           // tasks: the same for those of one machine
  std::string process_space;     // tasks: as neighbours.h says
  int ranks = 1;
  int min_nodes = 1, max_nodes = 1;
  int master_port = 0;    // that its rank 0 would use
  int first_attempt = 0;  // number of its first log folder
};

// A node's place in a round.
struct NodePlace {
  NodeCard card;
  int node = 0, first_rank = 0;
  int role_rank = 0, role_world = 1;  // of its first rank among all of this role
};

enum class Phase : int { rendezvous, running, stopping, over };

struct State {
  Phase phase = Phase::rendezvous;
  int round = 0;
  int restarts = 0;     // of the budget, used
  std::string waiting;  // rendezvous: who is missing
  std::vector<NodePlace> nodes;
  int world = 0, first_attempt = 0, master_port = 0;
  std::string master_addr;
  int signal = 0;                 // pass it on to the ranks
  std::vector<Failure> failures;  // stopping, over: by time
  bool again = false;             // stopping: another round follows
  std::string why;                // stopping without a failure
  bool save_only = false;  // this round, or the next, only saves what the ranks' memory holds, and ends
  int64_t saved = 0;       // steps of the newest checkpoint on disk that any node knows of
  int code = 0;            // over: the exit code

  const NodePlace* place_of(const std::string& token) const;
  const NodePlace* place_of_rank(int rank) const;  // the node it is on; null: on none
};

// Where a scheduler starts one task a rank, each task is a node here; its seat is by the machines they are
// on, which are counted in the order of their lowest tasks.
comm::Seat seat_of_task(const State& state, const NodePlace& task);

// Numbers the nodes: those with a given number in its order, the others in the order in which they came.
std::vector<NodePlace> place_nodes(const std::vector<NodeCard>& cards);

// "waiting for 1 of 4 nodes: node 2", or by hosts where nodes have no numbers. Tasks are called tasks.
std::string describe_waiting(const std::vector<NodeCard>& present, int wanted_nodes);

std::string write_json(const nlohmann::json& json);  // bytes that are not UTF-8 are replaced
nlohmann::json to_json(const NodeCard& card);
NodeCard card_from_json(const nlohmann::json& json);
nlohmann::json to_json(const State& state);
State state_from_json(const nlohmann::json& json);

}  // namespace lockstep::launch
