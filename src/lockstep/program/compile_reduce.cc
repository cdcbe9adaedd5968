// Data parallelism: gradients of all ranks become one. A rewrite of the list: behind the backward pass of a
// bucket of blocks, `reduce` sends each rank the parts that it sums, in the order of the tree over strands,
// while the compute lane goes on with the blocks below.
//
// Without sharing out, a rank sums an even part of every gradient and gives it to all. With it, the ranks of
// a shard group sum their own shards; where there are several replicas, those that hold the same shard do the
// rest. Where strands are dealt round-robin, every round is reduced, and the stack of partial sums is kept in
// shards. Where a group spans nodes, each of these is two instructions: among the node's ranks, then among
// nodes.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/device/alignment.h"
#include "lockstep/program/compiler.h"
#include "lockstep/program/nodes.h"

namespace lockstep::program {

namespace {

// Gradients of blocks that are ready together.
struct Bucket {
  size_t after = 0;  // instruction
  int round = -1;
  bool idle = false;
  std::vector<int> blocks, gradients;  // round-robin: the strand's buffers, one for each block
};

class Rewriter {
 public:
  Rewriter(Program& program, const model::Model& model)
      : program_(program),
        ranks_(program.ranks),
        assignment_(ranks_.assignment(program.strands)),
        tensor_partials_(has_partials(model) && !model.parts.fixes_products()),
        context_partials_(model.parts.context > 1 && !model.parts.fixes_sequences()) {
    const Run mine = assignment_.of_replica(ranks_.replica);
    sums_ = ranks_.exact && ranks_.sharded() ? static_cast<int>(nodes_of(program.strands, mine).size()) : 1;
    for (const int64_t s : assignment_.of_rank(ranks_.replica, ranks_.shard_rank)) {
      if (ranks_.exact && !ranks_.round_robin()) own_.push({s, s + 1});
    }
    // Partial sums of the group go above this rank's own where there are several, so that none is overwritten
    // unread.
    base_ = ranks_.sharded() && !ranks_.round_robin() && sums_ > 1 ? own_.depth() : 0;
  }

  void run() {
    const bool sums = ranks_.width() > 1 || context_partials_ || tensor_partials_;
    const std::vector<Bucket> buckets = sums ? find_buckets() : std::vector<Bucket>{};
    std::vector<std::vector<Instruction>> after(program_.instructions.size());
    const std::vector<int> depths = kept_after_rounds();
    for (const Bucket& bucket : buckets) {
      if (bucket.round >= 0) {
        before_ = bucket.round == 0 ? 0 : depths[static_cast<size_t>(bucket.round) - 1];
        after_ = depths[static_cast<size_t>(bucket.round)];
      }
      std::vector<Instruction>& list = after[bucket.after];
      add_up(list, bucket, Among::context);
      add_up(list, bucket, Among::tensor);
      const bool last = !ranks_.round_robin() || bucket.round + 1 == assignment_.rounds(ranks_.replica);
      if (ranks_.sharded()) {
        if (node_first(Among::shard)) list.push_back(reduce_near(bucket));
        list.push_back(ranks_.round_robin() ? reduce_round(bucket) : reduce_shards(bucket));
      }
      if (ranks_.replicas > 1 && last) {
        if (node_first(Among::replica)) list.push_back(reduce_near(bucket));
        list.push_back(reduce_replicas(bucket));
        if (node_first(Among::replica)) list.push_back(gather_near(bucket));
      }
    }
    std::vector<Instruction> list;
    for (size_t n = 0; n < program_.instructions.size(); ++n) {
      if (program_.instructions[n].is<Norm>()) {
        add_scalars(list, std::move(program_.instructions[n]));
      } else {
        list.push_back(std::move(program_.instructions[n]));
      }
      if (n == 0) add_inputs(list);
      for (Instruction& i : after[n]) list.push_back(std::move(i));
    }
    program_.instructions = std::move(list);
    if (base_ > 0) use_summed_level();
  }

 private:
  // Round-robin: how many partial sums the stack holds when a round is in. A pipeline may close rounds of
  // different blocks in different orders, but each block's in turn.
  std::vector<int> kept_after_rounds() const {
    std::vector<int> depths;
    Stack kept(program_.strands);
    for (int64_t round = 0; ranks_.round_robin() && round < assignment_.rounds(ranks_.replica); ++round) {
      for (int r = 0; ranks_.exact && r < ranks_.shard; ++r) {
        if (const int64_t s = assignment_.in_round(ranks_.replica, r, round); s >= 0) kept.push({s, s + 1});
      }
      depths.push_back(kept.depth());
    }
    return depths;
  }

  // For each block (and round) the last instruction that changes its gradient, gathered into buckets.
  std::vector<Bucket> find_buckets() const {
    struct Ready {
      size_t at;
      int block, gradient, round;
      bool idle;
    };
    std::map<std::pair<int, int>, Ready> last;  // {round, block}
    for (size_t n = 0; n < program_.instructions.size(); ++n) {
      const Instruction& i = program_.instructions[n];
      const bool joins = i.is<JoinStrands>();
      for (const Use& use : i.writes) {
        if (use.role != Role::grad && use.role != Role::partial && !joins) continue;
        const Buffer& buffer = program_.buffers[static_cast<size_t>(use.buffer)];
        const int round = ranks_.round_robin() ? buffer.slice : -1;
        last[{round, buffer.block}] = {n, buffer.block, use.buffer, round, idle(i.slice)};
      }
    }
    std::vector<Ready> order;
    for (const auto& [key, ready] : last) order.push_back(ready);
    std::sort(order.begin(), order.end(), [](const Ready& a, const Ready& b) { return a.at < b.at; });
    std::vector<Bucket> buckets;
    int64_t bytes = ranks_.bucket_bytes;
    for (const Ready& ready : order) {
      if (bytes >= ranks_.bucket_bytes || buckets.back().round != ready.round) {
        buckets.push_back(
            {.after = 0, .round = ready.round, .idle = ready.idle, .blocks = {}, .gradients = {}});
        bytes = 0;
      }
      buckets.back().after = ready.at;
      buckets.back().blocks.push_back(ready.block);
      buckets.back().gradients.push_back(ready.gradient);
      bytes += program_.buffers[static_cast<size_t>(ready.gradient)].bytes();
    }
    return buckets;
  }

  static Instruction start(const Bucket& bucket, Operation what, Among among) {
    return {.what = what,
            .lane = Lane::reduce,
            .block = bucket.blocks.size() == 1 ? bucket.blocks[0] : -1,
            .among = among};
  }
  int level(int block, int k) const {
    return program_.blocks[static_cast<size_t>(block)].gradients[static_cast<size_t>(k)];
  }

  static bool has_partials(const model::Model& model) {
    for (const model::Block& block : model.blocks) {
      for (const model::ParamSpec& spec : block.params()) {
        if (spec.partial) return true;
      }
    }
    return model.parts.sequence;
  }

  // Ranks that worked on other tokens or heads of the same slices hold addends of the same gradients: context
  // ranks of all, tensor ranks of what is not cut among them and yet differs: norms of their tokens or heads.
  void add_up(std::vector<Instruction>& list, const Bucket& bucket, Among among) const {
    const bool context = among == Among::context;
    if (bucket.idle || !(context ? context_partials_ : tensor_partials_)) return;
    Instruction i = start(bucket, SumPartials{bucket.round}, among);
    for (size_t k = 0; k < bucket.blocks.size(); ++k) {
      const int nodes = ranks_.round_robin() || !ranks_.exact ? 1 : own_.depth();
      for (int n = 0; n < nodes; ++n) {
        const int buffer = ranks_.round_robin() ? bucket.gradients[k] : level(bucket.blocks[k], n);
        i.reads.push_back({buffer, context ? Role::values : Role::partial, {}, bucket.blocks[k], n});
        if (context) i.moved_bytes += program_.buffers[static_cast<size_t>(buffer)].bytes();
      }
    }
    i.writes = i.reads;
    list.push_back(std::move(i));
  }

  bool node_first(Among group) const { return ranks_.node_first && ranks_.split() == group; }
  Among across(Among group) const { return node_first(group) ? Among::inter_node : group; }

  // What the node's ranks hold becomes one partial sum, in place of each one's own: of shards, or of even
  // pieces.
  Instruction reduce_near(const Bucket& bucket) {
    const bool shares = ranks_.split() == Among::shard;
    Instruction i = start(
        bucket, shares ? ReduceGradients{.round = bucket.round, .idle = bucket.idle} : ReduceGradients{},
        Among::intra_node);
    const int first = shares ? 0 : base_;
    const int nodes = shares || !ranks_.sharded() ? own_.depth() : sums_;
    for (size_t k = 0; k < bucket.blocks.size(); ++k) {
      const int block = bucket.blocks[k];
      const bool strand = shares && ranks_.round_robin();
      for (int n = 0; n < (strand ? 1 : nodes); ++n) {
        i.reads.push_back({strand ? bucket.gradients[k] : level(block, first + n), Role::node, {}, block, n});
      }
      i.writes.push_back({strand ? bucket.gradients[k] : level(block, first), Role::sum, {}, block, 0});
    }
    return with_scratch(std::move(i), bucket);
  }

  // The pieces of a sum that the node's ranks hold become whole on each.
  Instruction gather_near(const Bucket& bucket) const {
    Instruction i = start(bucket, GatherSums{}, Among::intra_node);
    for (const int block : bucket.blocks) {
      i.reads.push_back({level(block, base_), Role::sum, {}, block, 0});
      i.moved_bytes += reduce_parts(program_, block, Among::intra_node, -1).all_elements() * 4;
    }
    i.writes = i.reads;
    return i;
  }

  // One strand of each rank onto the stack of partial sums, in shards.
  Instruction reduce_round(const Bucket& bucket) {
    const ReduceGradients what{.round = bucket.round, .accumulate = bucket.round > 0, .idle = bucket.idle};
    Instruction i = start(bucket, what, across(Among::shard));
    const int have = ranks_.exact ? before_ : what.accumulate ? 1 : 0, leave = ranks_.exact ? after_ : 1;
    for (size_t k = 0; k < bucket.blocks.size(); ++k) {
      const int block = bucket.blocks[k];
      if (!bucket.idle) i.reads.push_back({bucket.gradients[k], Role::node, {}, block, 0});
      for (int n = 0; n < have; ++n) i.reads.push_back({level(block, n), Role::kept, {}, block, n});
      for (int n = 0; n < leave; ++n) i.writes.push_back({level(block, n), Role::sum, {}, block, n});
    }
    return with_scratch(std::move(i), bucket);
  }

  Instruction reduce_shards(const Bucket& bucket) {
    Instruction i =
        start(bucket, ReduceGradients{.round = bucket.round, .idle = bucket.idle}, across(Among::shard));
    const int nodes = ranks_.exact && i.among == Among::shard ? own_.depth() : 1;
    for (const int block : bucket.blocks) {
      for (int n = 0; n < nodes; ++n) i.reads.push_back({level(block, n), Role::node, {}, block, n});
      for (int n = 0; n < sums_; ++n) i.writes.push_back({level(block, base_ + n), Role::sum, {}, block, n});
    }
    return with_scratch(std::move(i), bucket);
  }

  Instruction reduce_replicas(const Bucket& bucket) {
    Instruction i = start(bucket, ReduceGradients{}, across(Among::replica));
    const bool one = !ranks_.exact || i.among == Among::inter_node;
    const int nodes = one ? 1 : ranks_.sharded() ? sums_ : own_.depth();
    for (const int block : bucket.blocks) {
      for (int n = 0; n < nodes; ++n) i.reads.push_back({level(block, base_ + n), Role::node, {}, block, n});
      i.writes.push_back({level(block, base_), Role::sum, {}, block, 0});
    }
    return with_scratch(std::move(i), bucket);
  }

  // Where the engine cannot read peers' memory, what they send needs a place; so do gradients in another wire
  // type.
  Instruction with_scratch(Instruction i, const Bucket& bucket) {
    const bool staged = ranks_.staged_among(i.among);
    const int round = i.get<ReduceGradients>()->round;
    const auto self = static_cast<size_t>(reduce_self(ranks_, i.among));
    const std::vector<std::vector<Run>> runs = reduce_runs(program_, i.among, round);
    int64_t others = 0;  // partial sums that other ranks give
    for (size_t q = 0; q < runs.size(); ++q) others += q == self ? 0 : static_cast<int64_t>(runs[q].size());
    int64_t bytes = 0;
    for (const int block : bucket.blocks) {
      const ReduceParts parts = reduce_parts(program_, block, i.among, round);
      const int64_t all = parts.all_elements(), own = parts.own_elements(static_cast<int>(self));
      i.moved_bytes += (all + own * (others + 2)) * 4;
      if (!ranks_.exact && ranks_.wire != device::DType::f32)
        bytes += all * device::size_of(ranks_.wire) + device::kAlignment;
      if (!ranks_.exact || !staged) continue;
      for (const Span& span : parts.spans[self])
        bytes += others * base::round_up(span.count * 4, device::kAlignment);
    }
    if (bytes > 0) {
      i.writes.push_back({program_.add_buffer({.name = fmt::format("staging {}", count_++),
                                               .kind = BufferKind::scratch,
                                               .dtype = device::DType::u8,
                                               .shape = {bytes}}),
                          Role::staging});
    }
    return i;
  }

  // How many labels count in the whole batch, and whether any rank was asked to stop.
  static void add_inputs(std::vector<Instruction>& list) {
    const Use inputs = list[0].writes[0];
    Instruction i{.what = SumInputs{}, .lane = Lane::reduce, .among = Among::all};
    i.reads = i.writes = {inputs};
    i.moved_bytes = kernels::kSummedInputs * static_cast<int64_t>(sizeof(double));
    list.push_back(std::move(i));
  }

  // Losses of all slices, and square sums of all shards: every rank gets every number. Each comes from one
  // rank and is zero elsewhere, so that adding them in any order gives the same bits.
  void add_scalars(std::vector<Instruction>& list, Instruction norm) const {
    const auto used = [](std::vector<Use>& uses, Role role) {
      return *std::find_if(uses.begin(), uses.end(), [&](const Use& use) { return use.role == role; });
    };
    const auto reduce = [&](const Use& use, Among among) {
      Instruction i{.what = SumScalars{}, .lane = Lane::reduce, .among = among};
      i.reads = i.writes = {{use.buffer, Role::scalars}};
      i.moved_bytes = program_.buffers[static_cast<size_t>(use.buffer)].bytes();
      list.push_back(std::move(i));
    };
    const Use losses = used(norm.reads, Role::losses), sums = used(norm.writes, Role::squares);
    reduce(losses, Among::all);
    if (!ranks_.sharded() && program_.parts.tensor == 1 && program_.stages.count == 1) {
      list.push_back(std::move(norm));
      return;
    }
    Instruction squares = norm, finish = norm;
    squares.what = Norm{Norm::Part::squares};
    squares.writes = {sums};
    std::erase_if(squares.reads, [](const Use& use) { return use.role == Role::losses; });
    list.push_back(std::move(squares));
    reduce(sums, Among::copy);
    finish.what = Norm{Norm::Part::finish};
    std::erase_if(finish.reads,
                  [](const Use& use) { return use.role == Role::gradient || use.role == Role::chunks; });
    finish.reads.push_back(sums);
    std::erase_if(finish.writes, [](const Use& use) { return use.role == Role::squares; });
    finish.moved_bytes = 0;
    list.push_back(std::move(finish));
  }

  // What follows the reduction reads the group's sums, not this rank's own.
  void use_summed_level() {
    for (Instruction& i : program_.instructions) {
      if (!i.is<Norm, ToOwners, Update, AddTied, SendTied>()) continue;
      for (auto* uses : {&i.reads, &i.writes}) {
        for (Use& use : *uses) {
          const int block = program_.buffers[static_cast<size_t>(use.buffer)].block;
          const bool held = block >= 0 && program_.blocks[static_cast<size_t>(block)].held();
          if (held && use.buffer == level(block, 0)) use.buffer = level(block, base_);
        }
      }
    }
  }

  Program& program_;
  const DataRanks ranks_;
  const StrandAssignment assignment_;
  const bool tensor_partials_;      // some parameters get addends from every tensor rank
  const bool context_partials_;     // of context ranks, summed in the order of the engine
  Stack own_{assignment_.strands};  // this rank's partial sums when its last strand is done
  int sums_ = 1;                    // partial sums that the shard group's reduction leaves
  int base_ = 0;                    // the level of the first of them
  int before_ = 0, after_ = 0;      // with turns: levels of the stack before and after the round at hand
  int count_ = 0;
};

// Statistics of slices that other ranks computed, so that everyone folds them all in slice order.
void share_statistics(Program& program, const model::Model& model) {
  std::vector<Instruction> list;
  for (Instruction& i : program.instructions) {
    if (!i.is<FoldStatistics>()) {
      list.push_back(std::move(i));
      continue;
    }
    Instruction gather{.what = GatherStatistics{},
                       .lane = Lane::gather,
                       .block = i.block,
                       .segment = i.segment,
                       .among = Among::data};
    std::map<std::string, Use> all;  // by text, in the order that every rank gathers them
    for (const Use& use : i.reads) {
      if (use.role == Role::stat) all[text_of(use)] = use;
    }
    gather.reads.reserve(all.size());
    for (const auto& [text, use] : all) gather.reads.push_back(use);
    const auto& segment =
        model.blocks[static_cast<size_t>(i.block)].segments()[static_cast<size_t>(i.segment)];
    for (const model::BufferSpec& spec : segment->buffers()) {
      for (int64_t s = 0; s < program.slices && !spec.constant; ++s) {
        Use use{.role = Role::stat, .name = spec.key, .number = static_cast<int>(s)};
        if (all.contains(text_of(use))) continue;
        use.buffer = program.add_buffer({.name = fmt::format("b{} s{} {}", i.block, s, spec.key),
                                         .kind = BufferKind::saved,
                                         .dtype = spec.dtype,
                                         .shape = spec.shape,
                                         .block = i.block,
                                         .slice = static_cast<int>(s)});
        gather.writes.push_back(use);
        i.reads.push_back(use);
        gather.moved_bytes += program.buffers[static_cast<size_t>(use.buffer)].bytes();
      }
    }
    list.push_back(std::move(gather));
    list.push_back(std::move(i));
  }
  program.instructions = std::move(list);
}

}  // namespace

void rewrite_reduce(Program& program, const model::Model& model) {
  Rewriter(program, model).run();
  if (program.ranks.width() > 1) share_statistics(program, model);
}

}  // namespace lockstep::program
