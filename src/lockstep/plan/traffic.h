// Traffic: how many bytes a rank sends in one step, counted from its list before anything runs.
//
//     const plan::Traffic sent = plan::traffic_of({program, model, mesh, rank, per_node});
//     sent.inside, sent.across      to ranks of its node, and of others
//
// The numbers are those that the groups count when the list runs (comm::Group::sent); a test compares them.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/comm/mesh.h"
#include "lockstep/program/program.h"

namespace lockstep::plan {

struct Traffic {
  int64_t inside = 0, across = 0;  // bytes that one rank sends
  int64_t all() const { return inside + across; }
  bool operator==(const Traffic&) const = default;
  // `sent[k]` bytes from `rank` to members[k]. `per_node` 0: all ranks stand on one node.
  void add(const std::vector<int>& members, const std::vector<int64_t>& sent, int rank, int per_node);
};

struct TrafficQuestion {
  const program::Program& program;
  const model::Model& model;
  comm::Mesh mesh;
  int rank = 0;
  int per_node = 0;  // ranks
};
Traffic traffic_of(const TrafficQuestion& question);

// Bytes that this rank gives to each member of the group that it meets in one instruction.
std::vector<int64_t> sent_to(const program::Program& program, const model::Model& model,
                             const program::Instruction& instruction, int size, int self);

}  // namespace lockstep::plan
