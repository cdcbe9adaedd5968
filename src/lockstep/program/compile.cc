#include "lockstep/program/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/program/compiler.h"

namespace lockstep::program {

using device::DType;
using device::Shape;

Compiler::Compiler(const model::Model& model, const Layout& layout) : model_(model), layout_(layout) {
  program_.training = layout.training;
  program_.slices = layout.slices;
  program_.strands = layout.strands;
  program_.samples_per_slice = layout.slice.samples;
  program_.seq_len = layout.slice.seq_len;
  program_.ranks = layout.ranks;
  program_.stages = layout.stages;
  program_.parts = model.parts;
  for (const model::Block& block : model.blocks) {
    layouts_.push_back(model::layout_of(block));
    plans_.emplace_back();
    for (const auto& segment : block.segments()) {
      plans_.back().push_back(segment->plan(layout.slice, *layout.kernels));
    }
  }
  find_backward();
  find_flows();
  if (layout.ranks.sharded()) program_.shards = cut_into_shards(layouts_, layout.ranks.shard);
}

Program Compiler::run() {
  deal_strands();
  find_merging();
  add_persistent();
  begin_step();
  std::vector<Turn> order;
  if (layout_.training) {
    order = turns(layout_.stages.schedule, layout_.stages.count, layout_.stages.self, layout_.stages.chunks,
                  static_cast<int64_t>(slices_.size()));
  } else {
    for (int chunk = 0; chunk < layout_.stages.chunks; ++chunk) order.push_back({.chunk = chunk});
  }
  const std::vector<std::vector<Turn>> arrivals = when_to_receive(order);
  for (size_t n = 0; n < order.size(); ++n) {
    for (const Turn& turn : arrivals[n]) receive(turn);
    take_turn(order[n]);
  }
  for (const Slice& s : slices_) {
    for (const Slice::Flow& flow : s.flows) {
      LS_ASSERT(flow.edges.empty(), "an edge is left over: " + flow.edges.begin()->first);
      LS_ASSERT(flow.dedges.empty(), "a gradient is left over: " + flow.dedges.begin()->first);
    }
  }
  if (layout_.training) finish_step();
  return std::move(program_);
}

// What comes from other stages is received from the turn on in which it is sent: then nobody who sends waits
// for one who computes, and what waits for anything waits for something earlier in the schedule's own time.
std::vector<std::vector<Turn>> Compiler::when_to_receive(const std::vector<Turn>& order) const {
  const Stages& stages = layout_.stages;
  std::vector<std::vector<Turn>> before(order.size());
  if (stages.count == 1) return before;
  if (!layout_.training) {
    for (size_t n = 0; n < order.size(); ++n) before[n] = {order[n]};
    return before;
  }
  const auto slices = static_cast<int64_t>(slices_.size());
  const auto ends = turn_ends(stages.schedule, stages.count, stages.chunks, slices);
  const int pieces = stages.count * stages.chunks;
  std::map<std::tuple<bool, int64_t, int>, int64_t> sent;  // {forward, slice, piece}: when
  for (int stage = 0; stage < stages.count; ++stage) {
    const std::vector<Turn> list = turns(stages.schedule, stages.count, stage, stages.chunks, slices);
    for (size_t k = 0; k < list.size(); ++k) {
      if (list[k].what == Turn::What::backward_weight) continue;
      const bool forward = list[k].what == Turn::What::forward;
      sent[{forward, list[k].slice, list[k].chunk * stages.count + stage}] =
          ends[static_cast<size_t>(stage)][k];
    }
  }
  const std::vector<int64_t>& own = ends[static_cast<size_t>(stages.self)];
  std::vector<std::pair<int64_t, Turn>> awaited;
  for (const Turn& turn : order) {
    const bool forward = turn.what == Turn::What::forward;
    const int from = turn.chunk * stages.count + stages.self + (forward ? -1 : 1);
    if (turn.what == Turn::What::backward_weight || from < 0 || from >= pieces) continue;
    awaited.emplace_back(sent.at({forward, turn.slice, from}), turn);
  }
  std::stable_sort(awaited.begin(), awaited.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [time, turn] : awaited) {
    const auto at = std::lower_bound(own.begin(), own.end(), time) - own.begin();
    before[static_cast<size_t>(at)].push_back(turn);
  }
  return before;
}

void Compiler::take_turn(const Turn& turn) {
  Slice& s = slices_[static_cast<size_t>(turn.slice)];
  switch (turn.what) {
    case Turn::What::forward:
      return forward_turn(s, turn.chunk);
    case Turn::What::backward:
      return backward_turn(s, turn.chunk, {.input = true, .weight = true});
    case Turn::What::backward_input:
      return backward_turn(s, turn.chunk, {.input = true, .weight = false});
    case Turn::What::backward_weight:
      return backward_turn(s, turn.chunk, {.input = false, .weight = true});
  }
}

// Those of this rank, and their slices. With turns, every rank of the group goes through every round, because
// each takes part in the others' collectives; a round without a strand is -1, and only its collectives stay
// in the list.
//
// A strand is summed into the top of a stack; then, block by block as the backward pass leaves them,
// neighbours that are halves of a node of the tree are joined. Where strands are dealt round-robin, each has
// a buffer that lives until it is reduced, and the stack is kept in shards by the reduction.
void Compiler::deal_strands() {
  const DataRanks& r = layout_.ranks;
  const StrandAssignment assignment = r.assignment(layout_.strands);
  std::vector<int64_t> own = {0};
  if (layout_.training) {
    own = assignment.of_rank(r.replica, r.shard_rank);
    if (r.round_robin()) own.resize(static_cast<size_t>(assignment.rounds(r.replica)), -1);
  }
  const int64_t per_strand = layout_.slices / layout_.strands;
  Stack stack(layout_.strands);
  for (const int64_t number : own) {
    Strand strand{.number = number};
    if (r.exact && !r.round_robin()) {
      strand.level = stack.depth();
      strand.joins = stack.push({number, number + 1});
    }
    for (int64_t i = 0; i < per_strand; ++i) {
      Slice s;
      s.number = static_cast<int>(number >= 0 ? number * per_strand + i : kIdle - i);
      s.strand = strands_.size();
      s.first = i == 0;
      s.last = i + 1 == per_strand;
      s.flows.resize(static_cast<size_t>(layout_.stages.chunks));
      s.seen.resize(model_.blocks.size());
      for (size_t b = 0; b < model_.blocks.size(); ++b) s.seen[b].resize(plans_[b].size());
      if (!idle(s.number)) program_.own_slices.push_back(s.number);
      slices_.push_back(std::move(s));
    }
    strands_.push_back(strand);
  }
}

// --- what lives across steps ---------------------------------------------------------------------

bool Compiler::mine(size_t block) const {
  return layout_.stages.stage_of(static_cast<int>(block)) == layout_.stages.self;
}

int Compiler::persistent(std::string name, BufferKind kind, DType type, Shape shape, int block) {
  return program_.add_buffer({.name = std::move(name),
                              .kind = kind,
                              .dtype = type,
                              .shape = shape,
                              .block = block,
                              .persistent = true});
}

void Compiler::add_block(size_t b, int levels, int64_t chunks) {
  const int block = static_cast<int>(b);
  const Shape values{layouts_[b].value_count}, grads{layouts_[b].grad_count};
  BlockBuffers keep;
  keep.master = persistent(fmt::format("b{} weights", b), BufferKind::master, DType::f32, values, block);
  keep.compute = model_.compute == DType::f32
                     ? keep.master
                     : persistent(fmt::format("b{} weights {}", b, device::name_of(model_.compute)),
                                  BufferKind::compute, model_.compute, values, block);
  // Gradients live from the first product that writes them to the update, so that they take the memory of
  // activations that the backward pass has done with.
  for (int level = 0; level < levels; ++level) {
    keep.gradients.push_back(program_.add_buffer({.name = fmt::format("b{} gradient {}", b, level),
                                                  .kind = BufferKind::gradient,
                                                  .shape = grads,
                                                  .block = block}));
  }
  if (layouts_[b].frozen_count > 0)
    keep.frozen = persistent(fmt::format("b{} frozen", b), BufferKind::frozen, model_.compute,
                             {layouts_[b].frozen_count}, block);
  if (layouts_[b].quantized_count > 0) {
    keep.format = layouts_[b].format;
    keep.quantized =
        persistent(fmt::format("b{} {}", b, kernels::name_of(keep.format)), BufferKind::quantized, DType::u8,
                   {kernels::quantized_bytes(keep.format, layouts_[b].quantized_count)}, block);
  }
  const int64_t table = chunks * static_cast<int64_t>(sizeof(kernels::Chunk));
  keep.chunks = keep.norm_chunks =
      persistent(fmt::format("b{} chunks", b), BufferKind::state, DType::u8, {table}, block);
  // What all tensor ranks hold counts once in the norm.
  if (layout_.training && model_.parts.tensor_rank > 0) {
    keep.norm_chunks =
        persistent(fmt::format("b{} chunks of the norm", b), BufferKind::state, DType::u8, {table}, block);
  }
  program_.blocks[b] = std::move(keep);
  if (layout_.training) add_state(b);
}

// What the optimizer keeps: a run as long as the region for each tensor, or tensors of every parameter that
// its rule must see whole.
void Compiler::add_state(size_t b) {
  const auto add = [&](StateBuffer state, const std::string& name, DType type, const Shape& shape) {
    state.buffer = persistent(name, BufferKind::optimizer, type, shape, static_cast<int>(b));
    program_.buffers.back().host = layout_.offload;
    program_.blocks[b].state.push_back(std::move(state));
  };
  for (size_t r = 0; r < layouts_[b].regions.size(); ++r) {
    const model::Region& region = layouts_[b].regions[r];
    const StateRule& rule = layout_.rules[static_cast<size_t>(region.rule)];
    const std::vector<Owned> owned = owned_in(b, r);
    for (const int k : region.params) {
      const model::PlacedParam& param = layouts_[b].params[static_cast<size_t>(k)];
      const auto owner =
          std::find_if(owned.begin(), owned.end(), [&](const Owned& one) { return one.param == k; });
      const bool cut = region.whole && param.spec.cut.cuts();
      const std::vector<StateRule::State> kept =
          rule.state(cut ? whole_shape(param.spec.cut, param.spec.shape) : param.spec.shape);
      for (size_t n = 0; n < kept.size(); ++n) {
        StateBuffer state{.region = static_cast<int>(r), .number = static_cast<int>(n), .name = kept[n].name};
        if (region.whole) {
          state.param = k, state.shape = kept[n].shape;
          state.values = {param.offset, param.spec.shape.numel()};
          state.of_owner = cut;
          const bool here = !cut || (owner != owned.end() && owner->owner == model_.parts.tensor_rank);
          add(state, fmt::format("b{} {} {}", b, param.spec.key, kept[n].name), kept[n].dtype,
              here ? kept[n].shape : Shape{0});
        } else if (k == region.params[0]) {
          state.values = {region.begin, region.count};
          const std::string suffix = r > 0 ? fmt::format(" of region {}", r) : "";
          add(state, fmt::format("b{} moment {}{}", b, n + 1, suffix), kept[n].dtype, {region.count});
        }
      }
    }
  }
}

StateRule element_rule(int tensors, device::DType type) {
  return {.state = [=](const Shape& parameter) {
    static constexpr const char* kNames[] = {"m", "v"};
    std::vector<StateRule::State> state;
    for (int k = 0; k < tensors; ++k)
      state.push_back({k < 2 ? kNames[k] : fmt::format("s{}", k), type, parameter});
    return state;
  }};
}

// On the way forward it is known what is trained so far. A segment needs the gradients of what it takes if
// something below it is trained, or if its own weights' gradients come from them (what backward_input
// leaves).
void Compiler::find_backward() {
  std::map<std::string, bool> wanted;  // edge to whether anybody reads its gradient
  for (size_t b = 0; b < plans_.size(); ++b) {
    backward_.emplace_back();
    wanted_.push_back(wanted);
    for (size_t g = 0; g < plans_[b].size(); ++g) {
      const model::SegmentPlan& plan = plans_[b][g];
      bool trained = false;
      for (const model::ParamSpec& spec : model_.blocks[b].params_of(g)) trained |= !spec.train.frozen;
      bool below = false;
      for (const auto* names : {&plan.inputs, &plan.passes}) {
        for (const std::string& name : *names) {
          below |= wanted[name];
          if (!wanted[name]) unread_.insert({b, g, name});
        }
      }
      const Backward back{.input = below || (trained && !plan.leaves.empty()),
                          .weight = trained && !plan.weight_needs.empty()};
      for (const std::string& name : plan.passes) wanted[name] |= back.input;
      for (const std::string& name : plan.inputs) wanted.erase(name);
      for (const model::ValueSpec& spec : plan.outputs)
        wanted[spec.name] = spec.gradient && (trained || back.input);
      backward_.back().push_back(back);
    }
  }
}

void Compiler::add_persistent() {
  int64_t slots = 0;
  program_.blocks.resize(model_.blocks.size());
  for (size_t b = 0; b < model_.blocks.size(); ++b) {
    const auto chunks = static_cast<int64_t>(model::chunks_of(layouts_[b], 0, false).size());
    slots += layouts_[b].slots;
    if (mine(b)) add_block(b, layout_.training ? gradient_levels(b) : 0, chunks);
  }
  // Values that a block of this stage is tied to, and that another stage holds.
  for (size_t b = 0; b < model_.blocks.size(); ++b) {
    for (const model::PlacedParam& param : layouts_[b].params) {
      if (!mine(b) || param.spec.tied_to.empty()) continue;
      const auto owner = static_cast<size_t>(model::find_tied(layouts_, param.spec).block);
      const bool frozen = param.spec.train.frozen;
      int& copy = frozen ? program_.blocks[owner].frozen : program_.blocks[owner].compute;
      if (mine(owner) || copy >= 0) continue;
      copy = persistent(fmt::format("b{} {} copied", owner, frozen ? "frozen" : "weights"),
                        frozen ? BufferKind::frozen : BufferKind::compute, model_.compute,
                        {frozen ? layouts_[owner].frozen_count : layouts_[owner].value_count},
                        static_cast<int>(owner));
    }
  }
  keep_.inputs = persistent("step inputs", BufferKind::state, DType::u8, {sizeof(kernels::StepInputs)}, -1);
  keep_.state = persistent("step state", BufferKind::state, DType::u8, {sizeof(kernels::StepState)}, -1);
  // And a place for the losses of those that do not count: tensor ranks all compute the same.
  // Of pairs, the log-probabilities of each slice's samples stand behind them, with such a place too.
  // Each piece of the slice's sequences has a place of its own (batch.sequence_strands).
  const int64_t of_slice = model_.parts.sequence_strands + (model_.pairs ? layout_.slice.samples : 0);
  keep_.slice_losses =
      persistent("slice losses", BufferKind::state, DType::f64, {(layout_.slices + 1) * of_slice}, -1);
  keep_.square_sums = persistent("square sums", BufferKind::state, DType::f64, {slots}, -1);
}

// A strand of one slice needs no gradients of its own where each is added once, by kernels that form their
// sums first: added to the partial sum that it would be joined to, it gives the same bits.
void Compiler::find_merging() {
  merges_.assign(model_.blocks.size(), false);
  const DataRanks& r = layout_.ranks;
  const bool may = layout_.training && layout_.slices == layout_.strands && r.exact && !r.round_robin() &&
                   layout_.kernels->adds_own_sums && !model_.parts.fixes_products() &&
                   !model_.parts.fixes_sequences();
  for (size_t b = 0; may && b < model_.blocks.size(); ++b) {
    const auto& segments = model_.blocks[b].segments();
    merges_[b] = true;
    for (size_t g = 0; g < segments.size(); ++g) {
      const std::vector<model::ParamSpec> params = model_.blocks[b].params_of(g);
      const bool trains = std::any_of(params.begin(), params.end(),
                                      [](const model::ParamSpec& spec) { return !spec.train.frozen; });
      if (trains && !segments[g]->adds_gradients_once(layout_.slice)) merges_[b] = false;
    }
  }
}

// As this block sums it.
Compiler::Strand Compiler::strand_of(size_t b, const Strand& strand) const {
  if (!merges_[b] || strand.joins == 0) return strand;
  return {.number = strand.number, .level = strand.level - 1, .joins = strand.joins - 1, .onto = true};
}

// How many sums of strands stand beside each other at most, and hold what a reduction among the shard leaves.
int Compiler::gradient_levels(size_t b) const {
  const DataRanks& r = layout_.ranks;
  if (!r.exact) return 1;
  const Run replica = r.assignment(layout_.strands).of_replica(r.replica);
  Stack stack(layout_.strands);
  int levels = 1;
  if (r.round_robin()) {  // only what a round leaves is kept
    for (int64_t s = replica.begin; s < replica.end; ++s) {
      stack.push({s, s + 1});
      const bool ends_round = (s + 1 - replica.begin) % r.shard == 0 || s + 1 == replica.end;
      if (ends_round) levels = std::max(levels, stack.depth());
    }
    return levels;
  }
  for (const Strand& strand : strands_) {
    levels = std::max(levels, strand_of(b, strand).level + 1);
    stack.push({strand.number, strand.number + 1});
  }
  const int sums = static_cast<int>(nodes_of(layout_.strands, replica).size());
  return r.sharded() && sums > 1 ? std::max(levels, stack.depth() + sums) : levels;
}

// The host's numbers of this step come in, and losses of slices that other ranks compute are zero.
void Compiler::begin_step() {
  Instruction load{.what = BeginStep{}, .lane = Lane::host};
  load.writes = {{keep_.inputs, Role::inputs}, {keep_.slice_losses, Role::losses}};
  program_.instructions.push_back(std::move(load));
}

namespace {

// Rounds in which this rank has no strand keep only what the others need it for.
void drop_idle(Program& program) {
  std::erase_if(program.instructions,
                [](const Instruction& i) { return idle(i.slice) && !i.is<GatherWeights, ReleaseWeights>(); });
  for (Instruction& i : program.instructions) {
    if (idle(i.slice)) i.slice = -1;
  }
}

}  // namespace

Program compile(const model::Model& model, const Layout& layout) {
  LS_ASSERT(layout.kernels != nullptr && layout.slices % layout.strands == 0);
  Program program = Compiler(model, layout).run();
  if (layout.training) rewrite_recompute(program, model, layout.recompute);
  rewrite_dequantize(program, model);
  if (layout.ranks.sharded()) rewrite_gather(program);
  if (layout.training && !program.alone()) rewrite_reduce(program, model);
  drop_idle(program);
  rewrite_reuse(program);
  return program;
}

}  // namespace lockstep::program
