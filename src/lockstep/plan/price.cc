#include "lockstep/plan/price.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

namespace lockstep::plan {

using program::Among;
using program::Instruction;
using program::Program;

namespace {

// What goes over the wire: weights, gradients, edges; not what an engine puts in between.
double bytes_of(const Program& program, const std::vector<program::Use>& uses) {
  double total = 0;
  for (const program::Use& use : uses) {
    const program::Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
    const bool travels = buffer.kind != program::BufferKind::scratch && use.role != program::Role::kept;
    if (travels) total += static_cast<double>(buffer.bytes());
  }
  return total;
}

bool writes_shares(const Program& program, const Instruction& i) {
  return std::any_of(i.writes.begin(), i.writes.end(), [&](const program::Use& use) {
    return program.buffers[static_cast<size_t>(use.buffer)].sharded;
  });
}

// How a group of NCCL's moves bytes over a machine's links.
class Routes {
 public:
  Routes(const Machine& machine, const Meet& meet) : machine_(machine), meet_(meet) {
    const bool crosses = meet.nodes > 1;
    const double of_node = std::max(1, meet.width / std::max(1, meet.nodes));
    bandwidth_ = crosses
                     ? std::min(machine.inside.bytes_per_second, of_node * machine.between.bytes_per_second)
                     : machine.inside.bytes_per_second;
  }
  // Everything passes everyone: an all-gather, a reduce-scatter, an all-to-all of `bytes` in all.
  double ring(double bytes) const {
    const double ranks = meet_.width, nodes = meet_.nodes;
    const double others = (ranks - 1) / ranks;  // the share of everything that comes from elsewhere
    const double around = (ranks - nodes) * machine_.inside.latency_seconds +
                          (nodes > 1 ? nodes * machine_.between.latency_seconds : 0);
    const double up = 2 * std::ceil(std::log2(std::max(2.0, ranks))) *
                      (nodes > 1 ? machine_.between : machine_.inside).latency_seconds;
    constexpr double kTree = 0.75;  // of the ring's bandwidth
    return std::min(bytes * others / bandwidth_ + around, bytes * others / (kTree * bandwidth_) + up);
  }
  double hop(double bytes) const {
    const Link& link = meet_.nodes > 1 ? machine_.between : machine_.inside;
    return bytes / link.bytes_per_second + link.latency_seconds;
  }

 private:
  const Machine& machine_;
  Meet meet_;
  double bandwidth_;
};

double meeting_seconds(const Machine& machine, const Meet& meet, const Program& program,
                       const Instruction& i) {
  // Across nodes go pieces: of everything, what each of a node's ranks deals with.
  const double piece = i.among == Among::inter_node ? program.ranks.near() : 1;
  const double in = bytes_of(program, i.reads) / piece, out = bytes_of(program, i.writes) / piece,
               ranks = meet.width;
  const Routes routes(machine, meet);
  const auto ring = [&](double bytes) { return routes.ring(bytes); };
  const auto hop = [&](double bytes) { return routes.hop(bytes); };
  const auto message = [&] { return hop(static_cast<double>(i.moved_bytes)); };
  // Parts of a sum to their owners; where all want all of it, on to everyone.
  const auto reduce = [&] {
    const bool scatters =
        i.among == Among::intra_node || writes_shares(program, i) || out * (ranks - 0.5) < in;
    return ring(in) + (scatters ? 0 : ring(out));
  };
  return std::visit(program::Cases{
                        [&](const program::SendValues&) { return message(); },
                        [&](const program::RecvValues&) { return message(); },
                        [&](const program::SendTied&) { return message(); },
                        [&](const program::RecvTied&) { return message(); },
                        [&](const program::SendWeights&) { return message(); },
                        [&](const program::RecvWeights&) { return message(); },
                        [&](const program::GatherTokens&) { return ring(out); },
                        [&](const program::GatherWeights&) { return ring(out); },
                        [&](const program::GatherSums&) { return ring(out); },
                        [&](const program::GatherStatistics&) { return ring(out); },
                        [&](const program::ExchangeHeads&) { return ring(std::max(in, out)); },
                        [&](const program::ShiftRing&) { return hop(in); },
                        [&](const program::SumValues&) { return reduce(); },
                        [&](const program::ScatterTokens&) { return reduce(); },
                        [&](const program::SumPartials&) { return reduce(); },
                        [&](const program::ReduceGradients&) { return reduce(); },
                        [&](const program::SumInputs&) { return reduce(); },
                        [&](const program::SumScalars&) { return reduce(); },
                        [](const program::BeginStep&) { return 0.0; },
                        [](const program::LoadSlice&) { return 0.0; },
                        [](const program::RunSegment&) { return 0.0; },
                        [](const program::FoldStatistics&) { return 0.0; },
                        [](const program::ReleaseWeights&) { return 0.0; },
                        [](const program::DequantizeWeights&) { return 0.0; },
                        [](const program::AddEdges&) { return 0.0; },
                        [](const program::JoinStrands&) { return 0.0; },
                        [](const program::AddTied&) { return 0.0; },
                        [](const program::Norm&) { return 0.0; },
                        [](const program::Update&) { return 0.0; },
                        [&](const program::ToOwners&) { return hop(static_cast<double>(i.moved_bytes)); },
                        [&](const program::FromOwners&) { return hop(static_cast<double>(i.moved_bytes)); },
                    },
                    i.what);
}

}  // namespace

double seconds_of(const Machine& machine, const Meet& meet, const Program& program, const Instruction& i) {
  if (i.among == Among::none) return work_seconds(machine, program, i).all();
  const bool alone = meet.width < 2 && !is_message(i);
  return machine.launch_seconds +
         (alone ? 0 : meeting_seconds(machine, {std::max(2, meet.width), meet.nodes}, program, i));
}

Meet meet_of(const Machine& machine, const World& world, int rank, Among among) {
  const bool message = among == Among::next || among == Among::previous;
  const std::vector<int> all =
      message ? std::vector{rank, world.peer(rank, among)} : world.members(rank, among);
  const auto node = [&](int r) { return r / machine.ranks_per_node; };
  Meet meet{static_cast<int>(all.size()), 1};  // members ascend, so those of a node are neighbours
  for (size_t k = 1; k < all.size(); ++k) meet.nodes += node(all[k]) != node(all[k - 1]) ? 1 : 0;
  return meet;
}

Price price_on(const Machine& machine, const World& world) {
  auto known = std::make_shared<std::map<std::pair<int, Among>, Meet>>();
  return [&machine, &world, known](int rank, const Program& program, const Instruction& i) {
    Meet meet;
    if (i.among != Among::none) {
      const auto [it, fresh] = known->try_emplace({rank, i.among});
      if (fresh) it->second = meet_of(machine, world, rank, i.among);
      meet = it->second;
    }
    return seconds_of(machine, meet, program, i);
  };
}

std::function<int(int rank)> apart_on(const Machine& machine, const World& world) {
  std::vector<Among> named;
  for (const Program* program : world.programs) {
    for (const Instruction& i : program->instructions) {
      if (i.among == Among::none || i.among == Among::all) continue;
      if (std::find(named.begin(), named.end(), i.among) == named.end()) named.push_back(i.among);
    }
  }
  // A group is asked once, for all of its members.
  auto bits = std::make_shared<std::vector<int>>(static_cast<size_t>(world.ranks()), 0);
  for (const Among among : named) {
    const bool message = among == Among::next || among == Among::previous;
    std::vector<bool> known(static_cast<size_t>(world.ranks()), false);
    for (int rank = 0; rank < world.ranks(); ++rank) {
      if (known[static_cast<size_t>(rank)]) continue;
      const int bit = meet_of(machine, world, rank, among).nodes > 1 ? 1 << static_cast<int>(among) : 0;
      for (const int member : message ? std::vector{rank} : world.members(rank, among)) {
        known[static_cast<size_t>(member)] = true;
        (*bits)[static_cast<size_t>(member)] |= bit;
      }
    }
  }
  return [bits](int rank) { return (*bits)[static_cast<size_t>(rank)]; };
}

}  // namespace lockstep::plan
