// The other launchers of this machine, where a scheduler starts one task a rank: the machine's lowest task
// watches them through pidfds, so that a killed task is noticed at once and not by its missing heartbeat.
//
// Only what can be seen is watched: a task in a container of its own has process numbers of its own, and its
// heartbeat remains.
#pragma once

#include <poll.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/launch/rendezvous/round_state.h"

namespace lockstep::launch {

std::string process_space();  // of this process's numbers: equal where they mean the same processes

class Neighbours {
 public:
  explicit Neighbours(std::string own_token) : own_token_(std::move(own_token)) {}
  ~Neighbours();
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  void begin_round(const State& state);  // watches the tasks of this machine that it does not watch yet
  void add_sources(std::vector<pollfd>& sources) const;
  std::vector<std::string> take_gone();  // tokens of launchers that have ended since the last call

 private:
  std::string own_token_;
  std::map<std::string, int> watched_;  // pidfd by token; -1: it has gone
};

}  // namespace lockstep::launch
