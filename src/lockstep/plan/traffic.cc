#include "lockstep/plan/traffic.h"

#include <algorithm>

#include "lockstep/kernels/optimizer/step_state.h"
#include "lockstep/model/layout.h"
#include "lockstep/plan/world.h"
#include "lockstep/program/nodes.h"

namespace lockstep::plan {

using program::Among;
using program::Instruction;
using program::Lane;
using program::Op;
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
    switch (i_.op) {
      case Op::reduce:
        reduce();
        break;
      case Op::gather:
        gather();
        break;
      case Op::exchange:
        exchange();
        break;
      case Op::send:
        for (const Use& use : i_.reads) give(1 - self_, use.role == "tied" ? i_.moved_bytes : bytes(use));
        break;
      default:
        break;
    }
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

  void reduce() {
    const std::string& role = i_.reads[0].role;
    if (i_.lane == Lane::seam) {
      role == "whole" ? give_all(bytes(i_.reads[0]) / size_) : all_reduce(bytes(i_.reads[0]));
    } else if (role == "inputs") {
      all_reduce(kernels::kSummedInputs * static_cast<int64_t>(sizeof(double)));
    } else if (role == "scalars") {
      all_reduce(bytes(i_.reads[0]));
    } else if (i_.among == Among::context) {
      for (const Use& use : i_.reads) all_reduce(bytes(use));
    } else if (i_.among == Among::tensor) {
      for (const Use& use : i_.reads) partial_sums(buffer(use).block);
    } else {
      gradients();
    }
  }

  // Of what tensor ranks all hold: each parameter is summed on its own.
  void partial_sums(int block) {
    const model::BlockLayout layout = model::layout_of(model_.blocks[static_cast<size_t>(block)]);
    for (const model::PlacedParam& param : layout.params) {
      if (param.spec.partial) all_reduce(param.spec.shape.numel() * 4);
    }
  }

  void gradients() {
    const program::DataRanks& r = program_.ranks;
    const auto given = static_cast<int64_t>(
        program::reduce_runs(program_, i_.among, i_.round)[static_cast<size_t>(self_)].size());
    const bool copies = (i_.among == Among::far ? r.split() : i_.among) == Among::replica;
    for (const Use& use : i_.writes) {
      if (!use.role.starts_with("sum.") || !use.role.ends_with(".0")) continue;  // once for each block
      const program::ReduceParts parts =
          program::reduce_parts(program_, buffer(use).block, i_.among, i_.round);
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

  void gather() {
    if (i_.lane == Lane::seam) return give_all(bytes(i_.reads[0]));
    if (i_.among == Among::data) {  // each is sent by the rank that has it
      for (const Use& use : i_.reads) give_all(bytes(use));
      return;
    }
    if (i_.lane == Lane::reduce) {
      for (const Use& use : i_.writes)
        give_all(program::reduce_parts(program_, buffer(use).block, i_.among, -1).own_elements(self_) * 4);
      return;
    }
    const auto& shares = program_.shares[static_cast<size_t>(i_.block)];
    const auto own = static_cast<size_t>(program_.ranks.shard_rank);
    const auto near = static_cast<size_t>(program_.ranks.near());
    const int64_t element = device::size_of(buffer(i_.writes[0]).dtype);
    for (size_t q = 0; q < shares.size(); ++q) {
      const bool handed_on = i_.among == Among::near ? q % near == own % near : q == own;
      if (handed_on) give_all(shares[q].values.count * element);
    }
  }

  void exchange() {
    const std::string& role = i_.reads[0].role;
    if (role == "onward" || role == "back") {
      give((self_ + (role == "onward" ? 1 : size_ - 1)) % size_, bytes(i_.reads[0]));
    } else {
      give_all(bytes(i_.writes[1]) / size_);  // what is packed, in even parts
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
