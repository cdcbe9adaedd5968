// What the ranks of every node are doing, for somebody who looks from one of them: the launcher that leads
// leaves it in RUN/trace while somebody asks, and nothing is written when nobody does.
//
//     ask_nodes("runs/first");                  // who looks, at every look
//     if (asked.again("runs/first")) ...        // the launcher: write_nodes(folder, nodes_text(facts))
//     for (const RankFacts& one : read_nodes("runs/first")) ...
//
// Clocks of hosts may differ: only times that one file server has given are compared.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/watch/facts.h"

namespace lockstep::watch {

constexpr std::chrono::seconds kNodesStayFresh{5};

// False: the folder cannot be written, so nobody will answer.
bool ask_nodes(const std::string& folder);

// Whether somebody has asked within the last seconds.
class NodesAsked {
 public:
  bool by_now(const std::string& folder);

 private:
  std::optional<std::filesystem::file_time_type> last_;
  std::chrono::steady_clock::time_point since_{};
};

// The answer, and into the run's folder: whole or not at all. A disk that is full is no reason to stop
// anything.
std::string nodes_text(const std::vector<RankFacts>& facts);
void write_nodes(const std::string& folder, const std::string& text);
// By rank; empty: nobody has answered, or not since the question.
std::vector<RankFacts> read_nodes(const std::string& folder);

}  // namespace lockstep::watch
