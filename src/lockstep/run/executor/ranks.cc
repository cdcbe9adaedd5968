#include "lockstep/run/executor/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/plan/world.h"

namespace lockstep::run {

using comm::Axis;
using program::Among;
using program::Lane;

Ranks::Ranks(comm::World& world) : world_(&world), cpu_(device::open({})) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) all[static_cast<size_t>(r)] = r;
  host_ = world.group("host", all, *cpu_);
  members_[host_.get()] = std::move(all);
  find_nodes();
}

// Every rank says whether it stands where it would if all nodes had as many ranks as its own.
void Ranks::find_nodes() {
  const comm::Seat& seat = world_->seat();
  if (seat.world == 1 || seat.nodes == 1) return;
  // For trying what it gains: as if nobody knew of nodes.
  const bool wanted = base::environment("LOCKSTEP_NODE_FIRST") != "off";
  const bool even = wanted && seat.nodes * seat.local_world == seat.world &&
                    seat.node * seat.local_world + seat.local_rank == seat.rank;
  std::vector<int> here;
  for (int r = 0; even && r < seat.local_world; ++r) here.push_back(seat.rank - seat.local_rank + r);
  if (sum(std::vector<double>{even ? 0.0 : 1.0, static_cast<double>(seat.local_world)}) !=
      std::vector<double>{0, static_cast<double>(seat.local_world) * seat.world}) {
    return;
  }
  per_node_ = seat.local_world;
  if (per_node_ == 1) return;
  const auto group = world_->group(fmt::format("node.{}", seat.node), here, *cpu_);
  const double apart = group->shares_memory() ? 0 : 1;
  node_shares_memory_ = sum(std::vector<double>{apart})[0] == 0;
}

bool Ranks::shares_memory() const { return !alone() && host_->shares_memory(); }

void Ranks::connect(const comm::Mesh& mesh, const program::Program& program, device::Device& device) {
  std::set<std::pair<Lane, Among>> wanted;
  for (const auto* list : {&program.instructions, &program.setup}) {
    for (const program::Instruction& i : *list) {
      if (i.among != Among::none) wanted.insert({i.lane, i.among});
    }
  }
  std::map<std::pair<Lane, std::vector<int>>, std::shared_ptr<comm::Group>>
      made;  // one for the same members of a lane
  for (const auto& [lane, among] : wanted) {
    if (among == Among::next || among == Among::previous) continue;
    const std::vector<int> members = plan::members_of(mesh, world_->rank(), among);
    std::shared_ptr<comm::Group>& group = made[{lane, members}];
    if (!group) {
      group =
          world_->group(fmt::format("{}.{}.{}", program::name_of(lane), program::name_of(among), members[0]),
                        members, device);
      members_[group.get()] = members;
    }
    groups_[{lane, among}] = group;
  }
  connect_stages(mesh, wanted, device);
}

namespace {

// The first message of a link, outside any step. NCCL connects a pair when they first speak, and holds the
// host meanwhile: two stages whose first calls were sends to each other would wait for ever.
void greet(comm::Group& link, bool sends, device::Device& device) {
  const device::Tensor word{device.allocate(256), device::DType::u8, {1}};
  device.fill_zero(word.data, word.bytes(), nullptr);
  if (sends) {
    link.send(word, 1 - link.rank());
  } else {
    link.recv(word, 1 - link.rank());
  }
  device.synchronize(nullptr);
  device.free(word.data);
}

}  // namespace

// Every directed link between two stages is a group of its own, used by one lane at either end. All ranks
// make theirs in the order of senders, so that nobody waits for one who waits for somebody else.
void Ranks::connect_stages(const comm::Mesh& mesh, const std::set<std::pair<Lane, Among>>& wanted,
                           device::Device& device) {
  struct Link {
    bool forward;
    int sender;
    std::pair<Lane, Among> key;
    int peer;
  };
  const std::vector<int> stages = comm::members(mesh, world_->rank(), {Axis::pipeline});
  const auto count = static_cast<int>(stages.size());
  const int self = comm::coordinate_of(mesh, world_->rank())[Axis::pipeline];
  std::vector<Link> links;
  for (const auto& [lane, among] : wanted) {
    if (among != Among::next && among != Among::previous) continue;
    const int other = (self + (among == Among::next ? 1 : count - 1)) % count;
    const bool sends = lane == Lane::send;
    links.push_back({sends == (among == Among::next), sends ? self : other, {lane, among}, other});
  }
  std::sort(links.begin(), links.end(), [](const Link& a, const Link& b) {
    return std::pair(!a.forward, a.sender) < std::pair(!b.forward, b.sender);
  });
  for (const Link& link : links) {
    std::vector<int> members = {stages[static_cast<size_t>(std::min(self, link.peer))],
                                stages[static_cast<size_t>(std::max(self, link.peer))]};
    std::shared_ptr<comm::Group>& group = groups_[link.key];
    group = world_->group(fmt::format("pipe.{}.{}", link.forward ? "forward" : "backward",
                                      stages[static_cast<size_t>(link.sender)]),
                          members, device);
    greet(*group, link.sender == self, device);
    members_[group.get()] = std::move(members);
  }
}

void Ranks::record_in(base::RingWriter* ring, comm::DeviceMarks* marks) {
  recorded_.clear();
  marks_ = marks;
  const auto record = [&](comm::Group& group) {
    group.record_in(ring, static_cast<int32_t>(recorded_.size()), marks);
    recorded_.push_back({group.name(), group.engine(), members_[&group], group.enqueues()});
  };
  if (host_) record(*host_);
  for (comm::Group* group : groups()) record(*group);
}

comm::Group& Ranks::group(Among among, Lane lane) const {
  const auto it = groups_.find({lane, among});
  LS_ASSERT(it != groups_.end(), "no process group for this lane");
  return *it->second;
}

std::vector<comm::Group*> Ranks::groups() const {
  std::vector<comm::Group*> all;
  for (const auto& [key, group] : groups_) {
    if (std::find(all.begin(), all.end(), group.get()) == all.end()) all.push_back(group.get());
  }
  return all;
}

plan::Traffic Ranks::sent() const {
  plan::Traffic all;
  for (const comm::Group* group : groups()) all.add(members_.at(group), group->sent(), rank(), per_node_);
  return all;
}

std::vector<double> Ranks::sum(std::vector<double> values) const {
  if (!alone()) host_->all_reduce({values.data(), device::DType::f64, {static_cast<int64_t>(values.size())}});
  return values;
}

std::vector<uint64_t> Ranks::sum(std::vector<uint64_t> values) const {
  if (!alone()) host_->all_reduce({values.data(), device::DType::i64, {static_cast<int64_t>(values.size())}});
  return values;
}

comm::Mesh mesh_of(const program::DataRanks& ranks, const model::Parts& parts,
                   const program::Stages& stages) {
  comm::Mesh mesh;
  mesh.sizes[static_cast<int>(Axis::tensor)] = parts.tensor;
  mesh.sizes[static_cast<int>(Axis::context)] = parts.context;
  mesh.sizes[static_cast<int>(Axis::pipeline)] = stages.count;
  mesh.sizes[static_cast<int>(Axis::shard)] = ranks.shard;
  mesh.sizes[static_cast<int>(Axis::replica)] = ranks.replicas;
  if (ranks.split() == Among::shard) mesh.near[static_cast<int>(Axis::shard)] = ranks.near();
  if (ranks.split() == Among::replica) mesh.near[static_cast<int>(Axis::replica)] = ranks.near();
  return mesh;
}

}  // namespace lockstep::run
