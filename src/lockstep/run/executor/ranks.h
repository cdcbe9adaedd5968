// The ranks of a run as the executor needs them: which of them take part in an instruction, and their
// groups.
//
// Lanes run beside each other, so each has groups of its own. Making them is collective: every rank makes the
// same ones in the same order.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "lockstep/comm/call_watch.h"
#include "lockstep/comm/device_marks.h"
#include "lockstep/comm/mesh.h"
#include "lockstep/comm/world.h"
#include "lockstep/plan/traffic.h"
#include "lockstep/program/program.h"
#include "lockstep/watch/recorder.h"

namespace lockstep::run {

class Ranks {
 public:
  Ranks() = default;                   // one rank
  explicit Ranks(comm::World& world);  // every rank; the host group is made
  // The groups that the program's instructions name.
  void connect(const comm::Mesh& mesh, const program::Program& program, device::Device& device);

  bool alone() const { return world_ == nullptr || world_->size() == 1; }
  int rank() const { return world_ == nullptr ? 0 : world_->rank(); }
  int size() const { return world_ == nullptr ? 1 : world_->size(); }
  bool first() const { return rank() == 0; }
  comm::World* world() const { return world_; }
  bool shares_memory() const;  // ranks on the CPU read each other's memory
  // Ranks of each node, neighbours; 0: all of them on one, or not the same on each.
  int per_node() const { return per_node_; }
  bool node_shares_memory() const { return shares_memory() || node_shares_memory_; }  // those of one node do

  // Every group's calls are marked there from now on.
  void record_in(base::RingWriter* ring, comm::DeviceMarks* marks = nullptr);
  comm::DeviceMarks* marks() const { return marks_; }  // null: nothing is marked on a device
  // What stands behind a group's number in the marks.
  using Recorded = watch::RecordedNames::Group;
  const std::vector<Recorded>& recorded() const { return recorded_; }  // by number

  comm::Group& group(program::Among among, program::Lane lane) const;
  std::vector<comm::Group*> groups() const;  // the program's, each once
  // What the program's groups have sent so far, counted call by call (comm::Group::sent).
  plan::Traffic sent() const;
  comm::Group& host() const {
    return *host_;
  }  // all ranks; tensors in host memory, used by the training thread only

  // Small numbers agreed on by all: each rank gives its own, every rank gets the sum.
  std::vector<double> sum(std::vector<double> values) const;
  std::vector<uint64_t> sum(std::vector<uint64_t> values) const;

 private:
  void find_nodes();
  void connect_stages(const comm::Mesh& mesh,
                      const std::set<std::pair<program::Lane, program::Among>>& wanted,
                      device::Device& device);
  comm::World* world_ = nullptr;
  std::unique_ptr<device::Device> cpu_;
  std::unique_ptr<comm::Group> host_;
  int per_node_ = 0;
  bool node_shares_memory_ = false;
  std::map<std::pair<program::Lane, program::Among>, std::shared_ptr<comm::Group>> groups_;
  std::map<const comm::Group*, std::vector<int>> members_;
  std::vector<Recorded> recorded_;
  comm::DeviceMarks* marks_ = nullptr;
};

// Where every rank of a layout stands.
comm::Mesh mesh_of(const program::DataRanks& ranks, const model::Parts& parts, const program::Stages& stages);

}  // namespace lockstep::run
