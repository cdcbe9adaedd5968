#include "lockstep/plan/traffic.h"

#include <algorithm>

#include "lockstep/kernels/optimizer/step_state.h"
#include "lockstep/model/layout.h"
#include "lockstep/plan/world.h"
#include "lockstep/program/nodes.h"
#include "lockstep/program/owners.h"

namespace lockstep::plan {

using program::Among;
using program::Instruction;
using program::Lane;
using program::Program;
using program::Use;

namespace {

class Sent {
 public:
  Sent(const Program& program, const model::Model& model, const Instruction& i, int size, int self)
      : program_(program),
        model_(model),
        i_(i),
        size_(size),
        self_(self),
        to_(static_cast<size_t>(size), 0) {}

  std::vector<int64_t> count() {
    std::visit(
        program::Cases{
            [&](const program::SumValues& sum) {
              if (!sum.tree) return all_reduce(bytes(i_.reads[0]));
              exchange_addends();
              give_all(own_elements(i_.writes[0]) * device::size_of(buffer(i_.writes[0]).dtype));
            },
            [&](const program::ScatterTokens&) { give_all(bytes(i_.reads[0]) / size_); },
            [&](const program::GatherTokens&) { give_all(bytes(i_.reads[0])); },
            // What is packed, in even parts.
            [&](const program::ExchangeHeads&) { give_all(bytes(i_.writes[1]) / size_); },
            [&](const program::ShiftRing& ring) {
              give((self_ + (ring.onward ? 1 : size_ - 1)) % size_, bytes(i_.reads[0]));
            },
            [&](const program::SendValues&) { send(); }, [&](const program::SendWeights&) { send(); },
            [&](const program::SendTied&) { give(1 - self_, i_.moved_bytes); },
            [&](const program::SumInputs&) {
              all_reduce(kernels::kSummedInputs * static_cast<int64_t>(sizeof(double)));
            },
            [&](const program::SumScalars&) { all_reduce(bytes(i_.reads[0])); },
            [&](const program::SumPartials& sum) { partial_sums(sum.tree); },
            [&](const program::ReduceGradients& reduce) { gradients(reduce); },
            [&](const program::GatherSums&) { sums(); }, [&](const program::GatherWeights&) { weights(); },
            // Each is sent by the rank that has it.
            [&](const program::GatherStatistics&) {
              for (const Use& use : i_.reads) give_all(bytes(use));
            },
            [](const program::BeginStep&) {}, [](const program::LoadSlice&) {},
            [](const program::RunSegment&) {}, [](const program::FoldStatistics&) {},
            [](const program::RecvValues&) {}, [](const program::RecvTied&) {},
            [](const program::RecvWeights&) {}, [](const program::ReleaseWeights&) {},
            [](const program::DequantizeWeights&) {}, [](const program::JoinStrands&) {},
            [](const program::AddEdges&) {},
            [](const program::AddTied&) {}, [&](const program::ToOwners& it) { to_owners(it.region); },
            [&](const program::FromOwners& it) { from_owners(it.region); }, [](const program::Norm&) {},
            [](const program::Update&) {}},
        i_.what);
    return std::move(to_);
  }

 private:
  const program::Buffer& buffer(const Use& use) const {
    return program_.buffers[static_cast<size_t>(use.buffer)];
  }
  int64_t bytes(const Use& use) const { return buffer(use).bytes(); }
  void give(int to, int64_t bytes) {
    if (to != self_) to_[static_cast<size_t>(to)] += bytes;
  }
  void give_all(int64_t bytes) {
    for (int q = 0; q < size_; ++q) give(q, bytes);
  }
  void all_reduce(int64_t bytes) { give_all(2 * bytes / size_); }

  // Every rank gets the others' addends of its share.
  void exchange_addends() {
    const std::vector<program::Span> shares = program::cut_evenly(buffer(i_.reads[0]).shape.numel(), size_);
    const int64_t element = device::size_of(buffer(i_.reads[0]).dtype);
    for (int q = 0; q < size_; ++q) give(q, shares[static_cast<size_t>(q)].count * element);
  }
  int64_t own_elements(const Use& use) const {
    return program::cut_evenly(buffer(use).shape.numel(), size_)[static_cast<size_t>(self_)].count;
  }

  void send() {
    for (const Use& use : i_.reads) give(1 - self_, bytes(use));
  }

  // Context ranks: all of it. Tensor ranks: of what they all hold, each parameter on its own.
  void partial_sums(bool tree) {
    for (const Use& use : i_.reads) {
      if (i_.among == Among::context) {
        all_reduce(bytes(use));
        continue;
      }
      const model::BlockLayout layout = model::layout_of(model_.blocks[static_cast<size_t>(use.block)]);
      for (const model::PlacedParam& param : layout.params) {
        if (!param.spec.partial || param.spec.train.frozen) continue;
        const int64_t bytes = param.spec.shape.numel() * 4;
        tree ? give_all(bytes) : all_reduce(bytes);
      }
    }
  }

  void gradients(const program::ReduceGradients& reduce) {
    const program::DataRanks& r = program_.ranks;
    const auto given = static_cast<int64_t>(
        program::reduce_runs(program_, i_.among, reduce.round)[static_cast<size_t>(self_)].size());
    const bool copies = (i_.among == Among::inter_node ? r.split() : i_.among) == Among::replica;
    for (const Use& use : i_.writes) {
      if (use.role != program::Role::sum || use.number != 0) continue;  // once for each block
      const program::ReduceParts parts = program::reduce_parts(program_, use.block, i_.among, reduce.round);
      if (!r.exact) {
        const int64_t wire = device::size_of(r.wire);
        for (size_t s = 0; copies && s < parts.spans[0].size(); ++s)
          all_reduce((parts.spans.back()[s].end() - parts.spans.front()[s].begin) * wire);
        for (int q = 0; q < size_ && !copies; ++q) give(q, parts.own_elements(q) * wire);
        continue;
      }
      for (int q = 0; q < size_; ++q) give(q, given * parts.own_elements(q) * 4);
      if (copies) give_all(parts.own_elements(self_) * 4);
    }
  }

  void sums() {
    for (const Use& use : i_.writes)
      give_all(program::reduce_parts(program_, use.block, i_.among, -1).own_elements(self_) * 4);
  }

  void weights() {
    const auto& shares = program_.shards[static_cast<size_t>(i_.block)];
    const auto own = static_cast<size_t>(program_.ranks.shard_rank);
    const auto near = static_cast<size_t>(program_.ranks.near());
    const int64_t element = device::size_of(buffer(i_.writes[0]).dtype);
    for (size_t q = 0; q < shares.size(); ++q) {
      const bool handed_on = i_.among == Among::intra_node ? q % near == own % near : q == own;
      const model::Stored stored = i_.get<program::GatherWeights>()->stored;
      const int64_t count = shares[q].kept(stored).span.count;
      const kernels::Quantized format = program_.blocks[static_cast<size_t>(i_.block)].format;
      if (handed_on)
        give_all(stored == model::Stored::quantized ? kernels::quantized_bytes(format, count)
                                                    : count * element);
    }
  }

  std::vector<program::Owned> owned(int region) const {
    const model::BlockLayout layout = model::layout_of(model_.blocks[static_cast<size_t>(i_.block)]);
    return program::owned_parameters(layout, layout.regions[static_cast<size_t>(region)],
                                     program_.held_values(layout, i_.block), program_.parts, i_.block);
  }
  void to_owners(int region) {  // gradient and master
    for (const program::Owned& one : owned(region)) give(one.owner, 2 * 4 * one.part_elements);
  }
  void from_owners(int region) {
    for (const program::Owned& one : owned(region)) {
      if (one.owner == self_) give_all(4 * one.part_elements);
    }
  }

  const Program& program_;
  const model::Model& model_;
  const Instruction& i_;
  int size_, self_;
  std::vector<int64_t> to_;
};

}  // namespace

void Traffic::add(const std::vector<int>& members, const std::vector<int64_t>& sent, int rank, int per_node) {
  for (size_t k = 0; k < members.size(); ++k) {
    const bool here = per_node == 0 || members[k] / per_node == rank / per_node;
    (here ? inside : across) += members[k] == rank ? 0 : sent[k];
  }
}

std::vector<int64_t> sent_to(const Program& program, const model::Model& model, const Instruction& i,
                             int size, int self) {
  return Sent(program, model, i, size, self).count();
}

Traffic traffic_of(const TrafficQuestion& question) {
  const World world = world_of(question.mesh);
  Traffic all;
  for (const Instruction& i : question.program.instructions) {
    if (i.among == Among::none) continue;
    std::vector<int> members = is_message(i) ? std::vector{question.rank, world.peer(question.rank, i.among)}
                                             : world.members(question.rank, i.among);
    const auto self = std::find(members.begin(), members.end(), question.rank) - members.begin();
    const std::vector<int64_t> sent = sent_to(question.program, question.model, i,
                                              static_cast<int>(members.size()), static_cast<int>(self));
    all.add(members, sent, question.rank, question.per_node);
  }
  return all;
}

}  // namespace lockstep::plan
