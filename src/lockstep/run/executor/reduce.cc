#include "lockstep/run/executor/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "lockstep/base/error.h"
#include "lockstep/kernels/reduce/tree_sum.h"
#include "lockstep/program/nodes.h"
#include "lockstep/run/executor/seam.h"
#include "lockstep/run/executor/tree_fold.h"

namespace lockstep::run {

using device::DType;
using device::Tensor;
using program::Among;
using program::DataRanks;
using program::Instruction;
using program::Role;
using program::Span;
using program::Use;

namespace {

// One block's part of the bucket.
struct BlockReduce : program::ReduceParts {
  std::vector<float*> nodes;       // this rank's partial sums, whole
  std::vector<float*> kept, sums;  // levels before and after, where spans start at `out`
};

Tensor view(float* data, const Span& span) { return {data + span.begin, DType::f32, {span.count}}; }

// Every rank gets the parts that the others summed.
void spread(comm::Group& group, const program::ReduceParts& parts, float* sums, device::Stream stream) {
  for (size_t s = 0; s < parts.spans[0].size(); ++s) {
    std::vector<Tensor> all;
    for (const auto& spans : parts.spans) all.push_back(view(sums, spans[s]));
    group.all_gather(all, stream);
  }
}

class Reduce {
 public:
  Reduce(const BindContext& context, const Instruction& i, const program::ReduceGradients& what,
         const kernels::Launch& launch)
      : c_(context),
        ranks_(context.program.ranks),
        instruction_(i),
        what_(what),
        launch_(launch),
        group_(context.options.ranks->group(i.among, i.lane)),
        kernels_(kernels::kernels_for(context.device.id().kind)) {
    const program::StrandAssignment assignment = ranks_.assignment(c_.program.strands);
    runs_ = program::reduce_runs(c_.program, i.among, what.round);
    LS_ASSERT(static_cast<int>(runs_.size()) == group_.size() &&
              program::reduce_self(ranks_, i.among) == group_.rank());
    for (int64_t round = 0; round < what.round; ++round) {
      for (int q = 0; q < ranks_.shard; ++q) {
        if (const int64_t s = assignment.in_round(ranks_.replica, q, round); s >= 0) kept_.push({s, s + 1});
      }
    }
    for (const auto* uses : {&i.reads, &i.writes}) {
      for (const Use& use : *uses) add(use);
    }
  }

  void run() {
    if (!ranks_.exact) {
      for (const BlockReduce& block : blocks_) in_engine_order(block);
      return;
    }
    const auto views = group_.borrow(offers(), expected(), staging_, launch_.stream);
    std::vector<size_t> at(views.size(), 0);  // [rank]: tensors of the blocks before
    for (const BlockReduce& block : blocks_) sum_block(block, views, at);
    group_.give_back(launch_.stream);
    if (!everyone_wants_all()) return;
    for (const BlockReduce& block : blocks_) spread(group_, block, block.sums[0], launch_.stream);
  }

 private:
  size_t me() const { return static_cast<size_t>(group_.rank()); }
  // Copies need whole sums; shares, and what a node sums for others, stay where they are.
  bool everyone_wants_all() const {
    const bool far = instruction_.among == Among::inter_node;
    return (far ? ranks_.split() : instruction_.among) == Among::replica;
  }

  void add(const Use& use) {
    if (use.role == Role::staging) {
      staging_ = c_.memory.tensor(use.buffer);
      return;
    }
    auto known = std::find(numbers_.begin(), numbers_.end(), use.block);
    if (known == numbers_.end()) {
      known = numbers_.insert(numbers_.end(), use.block);
      blocks_.push_back({program::reduce_parts(c_.program, use.block, instruction_.among, what_.round)});
    }
    BlockReduce& block = blocks_[static_cast<size_t>(known - numbers_.begin())];
    float* data = c_.memory.tensor(use.buffer).as<float>();
    (use.role == Role::node ? block.nodes : use.role == Role::kept ? block.kept : block.sums).push_back(data);
  }

  std::vector<std::vector<Tensor>> offers() const {
    std::vector<std::vector<Tensor>> all(runs_.size());
    for (size_t q = 0; q < all.size(); ++q) {
      for (const BlockReduce& block : blocks_) {
        for (float* node : block.nodes) {
          for (const Span& span : block.spans[q]) all[q].push_back(view(node, span));
        }
      }
    }
    return all;
  }

  std::vector<std::vector<Tensor>> expected() const {
    std::vector<std::vector<Tensor>> all(runs_.size());
    for (size_t q = 0; q < all.size(); ++q) {
      for (const BlockReduce& block : blocks_) {
        for (size_t n = 0; n < runs_[q].size(); ++n) {
          for (const Span& span : block.spans[me()]) all[q].push_back(view(nullptr, {0, span.count}));
        }
      }
    }
    return all;
  }

  void sum_block(const BlockReduce& block, const std::vector<std::vector<Tensor>>& views,
                 std::vector<size_t>& at) const {
    const size_t spans = block.spans[me()].size();
    for (size_t s = 0; s < spans; ++s) {
      const int64_t count = block.spans[me()][s].count;
      if (count == 0) continue;
      std::vector<Partial> kept, fresh;
      for (size_t k = 0; k < block.kept.size(); ++k)
        kept.push_back({kept_.runs()[k], block.kept[k] + block.out[s], nullptr});
      for (size_t q = 0; q < runs_.size(); ++q) {
        for (size_t n = 0; n < runs_[q].size(); ++n) {
          float* data = views[q][at[q] + n * spans + s].as<float>();
          fresh.push_back({runs_[q][n], data, staged_ && q != me() ? data : nullptr});
        }
      }
      std::sort(fresh.begin(), fresh.end(),
                [](const Partial& a, const Partial& b) { return a.run.begin < b.run.begin; });
      for (FoldPass& pass : fold(c_.program.strands, kept, fresh)) {
        pass.sum.count = count;
        if (pass.level >= 0) pass.sum.out = block.sums[static_cast<size_t>(pass.level)] + block.out[s];
        if (pass.sum.inputs == 1 && pass.sum.from[0] == pass.sum.out) continue;
        kernels_.tree_sum(pass.sum, launch_);
      }
    }
    for (size_t q = 0; q < runs_.size(); ++q) at[q] += runs_[q].size() * spans;
  }

  // exact = false: the engine adds as it likes, and in the wire's type.
  void in_engine_order(const BlockReduce& block) {
    for (size_t s = 0; s < block.spans[me()].size(); ++s) {
      if (instruction_.among == Among::replica) {
        const Span first = block.spans.front()[s], last = block.spans.back()[s];
        all_reduce(view(block.sums[0], {first.begin, last.end() - first.begin}));
      } else {
        scatter(block, s);
      }
    }
  }

  void all_reduce(const Tensor& values) {
    if (ranks_.wire == DType::f32) {
      group_.all_reduce(values, launch_.stream);
      return;
    }
    const Tensor wire = narrowed(values, staging_.as<char>());
    group_.all_reduce(wire, launch_.stream);
    kernels_.cast({ranks_.wire, DType::f32, values.numel(), wire.data, values.data}, launch_);
  }

  Tensor narrowed(const Tensor& values, char* to) const {
    kernels_.cast({DType::f32, ranks_.wire, values.numel(), values.data, to}, launch_);
    return {to, ranks_.wire, values.shape};
  }

  // The sum comes back in place of this rank's own part, which nobody needs any more.
  void scatter(const BlockReduce& block, size_t s) {
    std::vector<Tensor> parts;
    int64_t used = 0;
    for (const auto& spans : block.spans) {
      const Tensor part = view(block.nodes[0], spans[s]);
      parts.push_back(ranks_.wire == DType::f32 ? part : narrowed(part, staging_.as<char>() + used));
      used += parts.back().bytes();
    }
    group_.reduce_scatter(parts, parts[me()], launch_.stream);
    const Tensor mine = view(block.nodes[0], block.spans[me()][s]);
    if (ranks_.wire != DType::f32) {
      kernels_.cast({ranks_.wire, DType::f32, mine.numel(), parts[me()].data, mine.data}, launch_);
    }
    float* out = block.sums[0] + block.out[s];
    if (out == mine.data) return;
    if (what_.accumulate) {
      kernels_.add({mine.numel(), out, mine.as<float>()}, launch_);
    } else {
      c_.device.copy(out, mine.data, mine.bytes(), device::CopyKind::device_to_device, launch_.stream);
    }
  }

  BindContext c_;
  const DataRanks ranks_;
  const Instruction& instruction_;
  const program::ReduceGradients what_;
  const kernels::Launch launch_;
  comm::Group& group_;
  const bool staged_ = !group_.shares_memory();  // what others give is copied: free to be used
  const kernels::Kernels& kernels_;
  program::Stack kept_{c_.program.strands};      // what the levels hold before this round
  std::vector<std::vector<program::Run>> runs_;  // [rank of the group]: the partial sums it gives
  std::vector<int> numbers_;                     // of the blocks
  std::vector<BlockReduce> blocks_;
  Tensor staging_;
};

// Which data rank computes a slice.
std::vector<int> owners(const program::Program& program) {
  const program::StrandAssignment assignment = program.ranks.assignment(program.strands);
  const int64_t per_strand = program.slices / program.strands;
  std::vector<int> owner(static_cast<size_t>(program.slices), -1);
  for (int p = 0; p < assignment.replicas; ++p) {
    for (int r = 0; r < assignment.shard; ++r) {
      for (const int64_t strand : assignment.of_rank(p, r)) {
        for (int64_t k = 0; k < per_strand; ++k)
          owner[static_cast<size_t>(strand * per_strand + k)] = p * assignment.shard + r;
      }
    }
  }
  return owner;
}

}  // namespace

// Addends of gradients that context ranks hold, or tensor ranks of what is not cut among them: in place.
namespace {

// Small values: every rank gets all addends, and adds them up for itself.
std::function<void()> sum_in_tree(const BindContext& context, const Instruction& i, comm::Group& group,
                                  const std::vector<Tensor>& values, const kernels::Launch& launch) {
  const Tensor staging = context.memory.tensor(i.writes.back().buffer);
  const kernels::Kernels& kernels = kernels::kernels_for(context.device.id().kind);
  const auto self = static_cast<size_t>(group.rank());
  return [&group, &kernels, staging, values, self, launch] {
    for (const Tensor& value : values) {
      std::vector<Tensor> arrived = staged_addends(staging, value, group.size());
      const kernels::SumAddends sum = sum_of_addends(arrived, value, group.rank(), value);
      std::vector<Tensor> sent(arrived.size(), value);
      sent[self].shape = arrived[self].shape = {0};
      group.all_to_all(sent, arrived, launch.stream);
      kernels.sum_addends(sum, launch);
    }
  };
}

// Large values: every rank adds up a share, and then has the others'.
std::function<void()> sum_shares_in_tree(const BindContext& context, const Instruction& i, comm::Group& group,
                                         const Tensor& values, const kernels::Launch& launch) {
  const kernels::Kernels& kernels = kernels::kernels_for(context.device.id().kind);
  const auto self = static_cast<size_t>(group.rank());
  std::vector<Tensor> shares;
  for (const program::Span& span : program::cut_evenly(values.numel(), group.size()))
    shares.push_back({values.as<float>() + span.begin, DType::f32, {span.count}});
  const std::vector<Tensor> arrived =
      staged_addends(context.memory.tensor(i.writes.back().buffer), shares[self], group.size());
  const kernels::SumAddends sum = sum_of_addends(arrived, shares[self], group.rank(), shares[self]);
  std::vector<Tensor> sent = shares, received = arrived;
  sent[self].shape = received[self].shape = {0};
  return [&group, &kernels, shares, sent, received, sum, launch] {
    group.all_to_all(sent, received, launch.stream);
    kernels.sum_addends(sum, launch);
    group.all_gather(shares, launch.stream);
  };
}

}  // namespace

std::function<void()> bind_sum_partials(const BindContext& context,
                                        const std::vector<model::BlockLayout>& layouts, const Instruction& i,
                                        const kernels::Launch& launch) {
  comm::Group* group = &context.options.ranks->group(i.among, i.lane);
  std::vector<Tensor> values;
  for (const Use& use : i.reads) {
    const Tensor all = context.memory.tensor(use.buffer);
    if (i.among == Among::context) {
      if (all.numel() > 0) values.push_back(all);
      continue;
    }
    for (const model::PlacedParam& param : layouts[static_cast<size_t>(use.block)].params) {
      if (!param.spec.partial || param.spec.train.frozen) continue;
      values.push_back({all.as<float>() + param.offset, DType::f32, {param.spec.shape.numel()}});
    }
  }
  const bool tree = i.get<program::SumPartials>()->tree;
  if (tree && i.among == Among::context && values.size() == 1)
    return sum_shares_in_tree(context, i, *group, values[0], launch);
  if (tree) return sum_in_tree(context, i, *group, values, launch);
  return [group, values, launch] {
    for (const Tensor& value : values) group->all_reduce(value, launch.stream);
  };
}

// The node's ranks hold pieces of sums; each gets them all.
std::function<void()> bind_gather_sums(const BindContext& context, const Instruction& i,
                                       const kernels::Launch& launch) {
  comm::Group* group = &context.options.ranks->group(i.among, i.lane);
  std::vector<std::pair<program::ReduceParts, float*>> all;
  for (const Use& use : i.writes) {
    all.emplace_back(program::reduce_parts(context.program, use.block, i.among, -1),
                     context.memory.tensor(use.buffer).as<float>());
  }
  return [group, all, launch] {
    for (const auto& [parts, sums] : all) spread(*group, parts, sums, launch.stream);
  };
}

std::function<void()> bind_sum_scalars(const BindContext& context, const Instruction& i,
                                       const kernels::Launch& launch) {
  comm::Group* group = &context.options.ranks->group(i.among, i.lane);
  const Tensor values = context.memory.tensor(i.reads[0].buffer);
  return [group, values, launch] { group->all_reduce(values, launch.stream); };
}

std::function<void()> bind_sum_inputs(const BindContext& context, const Instruction& i,
                                      const kernels::Launch& launch) {
  comm::Group* group = &context.options.ranks->group(i.among, i.lane);
  const Tensor inputs = context.memory.tensor(i.reads[0].buffer);
  const Tensor summed{
      inputs.as<char>() + offsetof(kernels::StepInputs, valid_tokens), DType::f64, {kernels::kSummedInputs}};
  return [group, summed, launch] { group->all_reduce(summed, launch.stream); };
}

std::function<void()> bind_reduce(const BindContext& context, const Instruction& i,
                                  const program::ReduceGradients& what, const kernels::Launch& launch) {
  return [reduce = std::make_shared<Reduce>(context, i, what, launch)] { reduce->run(); };
}

std::function<void()> bind_gather_statistics(const BindContext& context, const Instruction& i,
                                             const kernels::Launch& launch) {
  comm::Group* group = &context.options.ranks->group(i.among, i.lane);
  const std::vector<int> owner = owners(context.program);
  std::map<std::string, Use> ordered;  // in the same order on every rank
  for (const auto* uses : {&i.reads, &i.writes}) {
    for (const Use& use : *uses) ordered[program::text_of(use)] = use;
  }
  std::vector<std::pair<Tensor, int>> all;
  for (const auto& [text, use] : ordered)
    all.emplace_back(context.memory.tensor(use.buffer), owner[static_cast<size_t>(use.number)]);
  return [group, all, launch] {
    for (const auto& [values, root] : all) group->broadcast(values, root, launch.stream);
  };
}

namespace {

// What a rank of the shard group holds of a block's weights, where it lies in all of them.
Tensor part_of(const program::Program& program, const WeightsOf& of, size_t rank, const Tensor& whole) {
  const Span held = program.shards[static_cast<size_t>(of.block)][rank].kept(of.which).span;
  if (of.which == model::Stored::quantized) {
    const kernels::Quantized format = program.blocks[static_cast<size_t>(of.block)].format;
    return {whole.as<char>() + kernels::quantized_bytes(format, held.begin),
            whole.dtype,
            {kernels::quantized_bytes(format, held.count)}};
  }
  return {whole.as<char>() + held.begin * device::size_of(whole.dtype), whole.dtype, {held.count}};
}

}  // namespace

std::function<void()> bind_gather_weights(const BindContext& context, const Instruction& i,
                                          const kernels::Launch& launch) {
  comm::Group* group = &context.options.ranks->group(i.among, i.lane);
  const Tensor whole = context.memory.tensor(i.writes[0].buffer),
               from = context.memory.tensor(i.reads[0].buffer);
  const WeightsOf of{i.block, i.get<program::GatherWeights>()->stored};
  const GatherParts calls = gather_parts(context.program, of, i.among, whole);
  const Tensor to =
      part_of(context.program, of, static_cast<size_t>(context.program.ranks.shard_rank), whole);
  device::Device* device = &context.device;
  return [group, calls, to, from, whole, device, launch] {
    if (from.data != whole.data) {
      device->copy(to.data, from.data, to.bytes(), device::CopyKind::device_to_device, launch.stream);
    }
    for (const std::vector<Tensor>& parts : calls) group->all_gather(parts, launch.stream);
  };
}

GatherParts gather_parts(const program::Program& program, const WeightsOf& of, Among among,
                         const Tensor& whole) {
  const std::vector<program::Shard>& shares = program.shards[static_cast<size_t>(of.block)];
  const auto part = [&](size_t rank) { return part_of(program, of, rank, whole); };
  const auto near = static_cast<size_t>(program.ranks.near());
  GatherParts calls;
  if (among == Among::intra_node) {  // of every node, the shares that its ranks of all seats hold
    for (size_t first = 0; first < shares.size(); first += near) {
      calls.emplace_back();
      for (size_t q = 0; q < near; ++q) calls.back().push_back(part(first + q));
    }
    return calls;
  }
  const bool far = among == Among::inter_node;
  calls.emplace_back();
  const size_t seat = far ? static_cast<size_t>(program.ranks.shard_rank) % near : 0;
  for (size_t q = seat; q < shares.size(); q += far ? near : 1) calls.back().push_back(part(q));
  return calls;
}

}  // namespace lockstep::run
