// Sharding (ZeRO): ranks of a shard group hold shards of the optimizer's state, of gradients, of weights.
// A rewrite of the list: buffers shrink to this rank's shard, and `gather` brings weights together where
// something reads them whole; `release` says where the gathered copy ends. Gathers stand one block ahead of
// their use, on a lane of their own.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/program/compile.h"

namespace lockstep::program {

namespace {

class Rewriter {
 public:
  explicit Rewriter(Program& program) : program_(program) {
    for (size_t b = 0; b < program.blocks.size(); ++b) {
      for (const int values :
           {program.blocks[b].compute, program.blocks[b].frozen, program.blocks[b].quantized}) {
        if (values >= 0) owner_[values] = static_cast<int>(b);
      }
    }
  }

  void shrink() {
    const DataRanks& r = program_.ranks;
    for (size_t b = 0; b < program_.blocks.size(); ++b) {
      BlockBuffers& keep = program_.blocks[b];
      const Shard& shard = program_.own_shard(static_cast<int>(b));
      const auto cut = [&](int buffer, int64_t elements) {
        Buffer& it = program_.buffers[static_cast<size_t>(buffer)];
        it.shape = {elements};
        it.sharded = true;
      };
      if (r.zero == 3 && keep.frozen >= 0) cut(keep.frozen, shard.frozen.span.count);
      if (r.zero == 3 && keep.quantized >= 0)
        cut(keep.quantized, kernels::quantized_bytes(keep.format, shard.quantized.span.count));
      if (r.zero == 3 && keep.master != keep.compute && keep.compute >= 0)
        cut(keep.compute, shard.values.count);
      if (!keep.held()) continue;
      if (r.zero == 3 || keep.master != keep.compute) cut(keep.master, shard.values.count);
      for (StateBuffer& state : keep.state) cut_state(state, shard.values);
      for (const int table : {keep.chunks, keep.norm_chunks})
        cut(table, shard.chunks * static_cast<int64_t>(sizeof(kernels::Chunk)));
      if (r.round_robin()) {
        for (const int gradient : keep.gradients) cut(gradient, shard.gradient_count);
      }
    }
  }

  // Stages 1 and 2: each rank updates its share, then everyone gets the others' behind its back.
  void gather_after_update() {
    std::map<int, size_t> last;  // of a block: its last update
    for (size_t n = 0; n < program_.instructions.size(); ++n) {
      if (program_.instructions[n].is<Update, FromOwners>()) last[program_.instructions[n].block] = n;
    }
    std::vector<Instruction> list;
    for (size_t n = 0; n < program_.instructions.size(); ++n) {
      const int block = program_.instructions[n].block;
      const bool updated = program_.instructions[n].is<Update, FromOwners>() && last.at(block) == n;
      list.push_back(std::move(program_.instructions[n]));
      if (updated) gather(list, program_.blocks[static_cast<size_t>(block)].compute, -1);
    }
    program_.instructions = std::move(list);
  }

  // Stage 3: whole weights exist only while a block is at work, and while the one after it is being fetched.
  void gather_before_use() {
    const std::vector<Stay> stays = find_stays();
    std::vector<std::vector<Instruction>> before(program_.instructions.size()),
        after(program_.instructions.size());
    std::map<int, int> whole;  // this rank's shard to the gathered buffer, in the stay at hand
    for (size_t k = 0; k < stays.size(); ++k) {
      std::map<int, int> next;
      for (const int shard : stays[k].shards) {
        const auto there = whole.find(shard);
        next[shard] = there != whole.end() ? there->second : fresh(shard);
        if (there == whole.end())
          gather(before[stays[k > 0 ? k - 1 : 0].first], shard, stays[k].slice, next[shard]);
      }
      for (size_t n = stays[k].first; n <= stays[k].last; ++n) redirect(program_.instructions[n], next);
      for (const auto& [shard, buffer] : next) {
        const bool stays_on = k + 1 < stays.size() &&
                              std::count(stays[k + 1].shards.begin(), stays[k + 1].shards.end(), shard) > 0;
        if (!stays_on) after[stays[k].last].push_back(release(owner_.at(shard), buffer, stays[k].slice));
      }
      whole = std::move(next);
    }
    std::vector<Instruction> list;
    for (size_t n = 0; n < program_.instructions.size(); ++n) {
      for (Instruction& i : before[n]) list.push_back(std::move(i));
      list.push_back(std::move(program_.instructions[n]));
      for (Instruction& i : after[n]) list.push_back(std::move(i));
    }
    program_.instructions = std::move(list);
  }

 private:
  // A run of instructions of one block and slice, and the weights that they read: this rank's shards.
  struct Stay {
    size_t first = 0, last = 0;
    int block = -1, slice = -1;
    std::vector<int> shards;
  };

  // What the optimizer keeps goes with the values; of a parameter that it needs whole, with all of it.
  void cut_state(StateBuffer& state, const Span& values) {
    Buffer& it = program_.buffers[static_cast<size_t>(state.buffer)];
    it.sharded = true;
    if (state.param >= 0) {
      if (state.values.begin < values.begin || state.values.end() > values.end()) it.shape = {0};
      return;
    }
    const Span held = intersect(values, state.values);
    state.values = held;
    it.shape = {held.count};
  }

  std::vector<Stay> find_stays() const {
    std::vector<Stay> stays;
    for (size_t n = 0; n < program_.instructions.size(); ++n) {
      const Instruction& i = program_.instructions[n];
      if (i.segment < 0 || i.is<FoldStatistics>()) continue;
      if (stays.empty() || stays.back().block != i.block || stays.back().slice != i.slice) {
        stays.push_back({.first = n, .last = n, .block = i.block, .slice = i.slice, .shards = {}});
      }
      Stay& stay = stays.back();
      for (const Use& use : i.reads) {
        if (use.role != Role::weight || !owner_.contains(use.buffer)) continue;
        stay.last = n;
        if (std::count(stay.shards.begin(), stay.shards.end(), use.buffer) == 0)
          stay.shards.push_back(use.buffer);
      }
    }
    std::erase_if(stays, [](const Stay& stay) { return stay.shards.empty(); });
    return stays;
  }

  model::Stored stored(int shard) const {
    const BufferKind kind = program_.buffers[static_cast<size_t>(shard)].kind;
    if (kind == BufferKind::quantized) return model::Stored::quantized;
    return kind == BufferKind::frozen ? model::Stored::frozen : model::Stored::trained;
  }

  int fresh(int shard) {
    const int owner = owner_.at(shard);
    int64_t elements = 0;
    for (const Shard& one : program_.shards[static_cast<size_t>(owner)])
      elements += one.kept(stored(shard)).span.count;
    if (stored(shard) == model::Stored::quantized)
      elements = kernels::quantized_bytes(program_.blocks[static_cast<size_t>(owner)].format, elements);
    return program_.add_buffer({.name = fmt::format("b{} weights gathered {}", owner, count_++),
                                .kind = BufferKind::compute,
                                .dtype = program_.buffers[static_cast<size_t>(shard)].dtype,
                                .shape = {elements},
                                .block = owner});
  }

  // Where the shard group spans nodes, every share crosses to each node once, to the rank with the same seat
  // there, which hands it on to its neighbours.
  void gather(std::vector<Instruction>& list, int from, int slice, int to = -1) const {
    const bool by_nodes = program_.ranks.split() == Among::shard;
    const int whole = to < 0 ? from : to;
    Instruction i{.what = GatherWeights{.after_update = to < 0, .stored = stored(from)},
                  .lane = Lane::gather,
                  .block = owner_.at(from),
                  .slice = slice};
    i.among = by_nodes ? Among::inter_node : Among::shard;
    i.reads = {{from, to < 0 ? Role::whole : Role::shard}};
    i.writes = {{whole, Role::whole}};
    i.moved_bytes = program_.buffers[static_cast<size_t>(whole)].bytes();
    Instruction near = i;
    if (by_nodes) i.moved_bytes /= program_.ranks.near();
    list.push_back(std::move(i));
    if (!by_nodes) return;
    near.among = Among::intra_node;
    near.reads = near.writes;
    list.push_back(std::move(near));
  }

  static Instruction release(int owner, int buffer, int slice) {
    Instruction i{.what = ReleaseWeights{}, .block = owner, .slice = slice};
    i.reads = {{buffer, Role::whole}};
    return i;
  }

  void redirect(Instruction& i, const std::map<int, int>& whole) const {
    for (Use& use : i.reads) {
      if (use.role == Role::weight && owner_.contains(use.buffer)) use.buffer = whole.at(use.buffer);
    }
  }

  Program& program_;
  std::map<int, int> owner_;  // compute, frozen or quantized buffer to its block
  int count_ = 0;
};

}  // namespace

void rewrite_gather(Program& program) {
  Rewriter rewriter(program);
  rewriter.shrink();
  if (program.ranks.zero == 3) {
    rewriter.gather_before_use();
  } else if (program.training) {
    rewriter.gather_after_update();
  }
}

}  // namespace lockstep::program
