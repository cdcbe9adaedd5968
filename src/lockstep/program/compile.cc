#include "lockstep/program/compile.h"

#include <fmt/format.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/model/layout.h"

namespace lockstep::program {

namespace {

using device::DType;
using device::Shape;
using model::Part;
using model::SegmentPlan;
using model::ValueSpec;

// Buffers of the whole program that live across steps.
struct Persistent {
  std::map<std::string, int> tables;  // tables and statistics, shared by name
  int state = -1, inputs = -1, slice_losses = -1, square_sums = -1;
};

class Compiler {
 public:
  Compiler(const model::Model& model, const Layout& layout)
      : model_(model), layout_(layout), stack_(layout.strands) {
    program_.training = layout.training;
    program_.slices = layout.slices;
    program_.strands = layout.strands;
    program_.samples_per_slice = layout.slice.samples;
    program_.seq_len = layout.slice.seq_len;
    program_.ranks = layout.ranks;
    for (const model::Block& block : model.blocks) {
      layouts_.push_back(model::layout_of(block));
      plans_.emplace_back();
      for (const auto& segment : block.segments()) {
        plans_.back().push_back(segment->plan(layout.slice, *layout.kernels));
        program_.workspace_bytes = std::max(program_.workspace_bytes, plans_.back().back().workspace);
      }
    }
  }

  Program run() {
    const std::vector<int64_t> strands = own_strands();
    add_persistent(strands);
    begin_step();
    for (const int64_t strand : strands) one_strand(strand);
    if (layout_.training) finish_step();
    return std::move(program_);
  }

 private:
  // Those of this rank. With turns, every rank of the group goes through every round, because each takes part
  // in the others' collectives; a round without a strand is -1, and only its collectives stay in the list.
  std::vector<int64_t> own_strands() const {
    const DataRanks& r = layout_.ranks;
    if (!layout_.training) return {0};
    const Deal deal = r.deal(layout_.strands);
    std::vector<int64_t> own = deal.of_rank(r.replica, r.shard_rank);
    if (r.turns()) own.resize(static_cast<size_t>(deal.rounds(r.replica)), -1);
    return own;
  }

  // --- what lives across steps -------------------------------------------------------------------
  int persistent(std::string name, BufferKind kind, DType type, Shape shape, int block) {
    return program_.add_buffer({.name = std::move(name),
                                .kind = kind,
                                .dtype = type,
                                .shape = shape,
                                .block = block,
                                .persistent = true});
  }

  void add_persistent(const std::vector<int64_t>& strands) {
    const int levels = layout_.training ? gradient_levels(strands) : 0;
    int64_t chunk_count = 0;
    for (size_t b = 0; b < model_.blocks.size(); ++b) {
      const int block = static_cast<int>(b);
      const Shape values{layouts_[b].value_count}, grads{layouts_[b].grad_count};
      BlockBuffers keep;
      keep.master = persistent(fmt::format("b{} weights", b), BufferKind::master, DType::f32, values, block);
      keep.compute = model_.compute == DType::f32
                         ? keep.master
                         : persistent(fmt::format("b{} weights {}", b, device::name_of(model_.compute)),
                                      BufferKind::compute, model_.compute, values, block);
      for (int level = 0; level < levels; ++level) {
        keep.gradients.push_back(persistent(fmt::format("b{} gradient {}", b, level), BufferKind::gradient,
                                            DType::f32, grads, block));
      }
      for (int k = 0; layout_.training && k < layout_.moments; ++k) {
        keep.moments.push_back(persistent(fmt::format("b{} moment {}", b, k + 1), BufferKind::optimizer,
                                          DType::f32, values, block));
      }
      const auto chunks = static_cast<int64_t>(model::chunks_of(layouts_[b], 0, false).size());
      chunk_count += chunks;
      keep.chunks = persistent(fmt::format("b{} chunks", b), BufferKind::state, DType::u8,
                               {chunks * static_cast<int64_t>(sizeof(kernels::Chunk))}, block);
      program_.blocks.push_back(std::move(keep));
    }
    strand_.assign(model_.blocks.size(), -1);
    keep_.inputs = persistent("step inputs", BufferKind::state, DType::u8, {sizeof(kernels::StepInputs)}, -1);
    keep_.state = persistent("step state", BufferKind::state, DType::u8, {sizeof(kernels::StepState)}, -1);
    keep_.slice_losses = persistent("slice losses", BufferKind::state, DType::f64, {layout_.slices + 1}, -1);
    keep_.square_sums = persistent("square sums", BufferKind::state, DType::f64, {chunk_count}, -1);
    program_.add_buffer({.name = "workspace",
                         .kind = BufferKind::workspace,
                         .dtype = DType::u8,
                         .shape = {program_.workspace_bytes},
                         .persistent = true});
  }

  // How many sums of strands stand beside each other at most, and hold what a reduction among the shard
  // leaves.
  int gradient_levels(const std::vector<int64_t>& strands) const {
    const DataRanks& r = layout_.ranks;
    if (!r.exact) return 1;
    const Run replica = r.deal(layout_.strands).of_replica(r.replica);
    Stack stack(layout_.strands);
    int levels = 1;
    if (r.turns()) {  // only what a round leaves is kept
      for (int64_t s = replica.begin; s < replica.end; ++s) {
        stack.push({s, s + 1});
        const bool ends_round = (s + 1 - replica.begin) % r.shard == 0 || s + 1 == replica.end;
        if (ends_round) levels = std::max(levels, stack.depth());
      }
      return levels;
    }
    for (const int64_t s : strands) {
      levels = std::max(levels, stack.depth() + 1);
      stack.push({s, s + 1});
    }
    const int sums = static_cast<int>(nodes_of(layout_.strands, replica).size());
    return r.sharded() && sums > 1 ? std::max(levels, stack.depth() + sums) : levels;
  }

  // The host's numbers of this step come in, and losses of slices that other ranks compute are zero.
  void begin_step() {
    Instruction load{.op = Op::load, .lane = Lane::host};
    load.writes = {{keep_.inputs, "inputs"}, {keep_.slice_losses, "losses"}};
    program_.instructions.push_back(std::move(load));
  }

  // --- one slice -----------------------------------------------------------------------------------
  int value(const ValueSpec& spec, BufferKind kind, int block, int slice) {
    return program_.add_buffer({.name = fmt::format("b{} s{} {}", block, slice, spec.name),
                                .kind = kind,
                                .dtype = spec.dtype,
                                .shape = spec.shape,
                                .block = block,
                                .slice = slice,
                                .external = spec.external});
  }

  void slice(int s, bool accumulate, bool closes) {
    if (s >= 0) program_.own_slices.push_back(s);
    Instruction load{.op = Op::load, .lane = Lane::host, .slice = s};
    std::map<std::string, int> batch;
    for (const auto& [field, words] :
         {std::pair("inputs", model_.input_words), std::pair("labels", model_.label_words)}) {
      batch[field] =
          program_.add_buffer({.name = fmt::format("s{} {}", s, field),
                               .kind = BufferKind::batch,
                               .dtype = DType::i32,
                               .shape = {layout_.slice.samples, words > 0 ? words : layout_.slice.seq_len},
                               .slice = s});
      load.writes.push_back({batch[field], field});
    }
    program_.instructions.push_back(std::move(load));

    std::map<std::string, int> edges, dedges;
    // What each segment's forward saw and made, by role: "in.hidden" to its buffer.
    std::vector<std::vector<std::map<std::string, int>>> seen(model_.blocks.size());
    for (size_t b = 0; b < model_.blocks.size(); ++b) {
      seen[b].resize(plans_[b].size());
      for (size_t g = 0; g < plans_[b].size(); ++g)
        forward(b, g, s, accumulate, batch, edges, dedges, seen[b][g]);
    }
    LS_ASSERT(edges.empty(), "an edge is left over: " + edges.begin()->first);
    if (!layout_.training) return;
    for (size_t b = model_.blocks.size(); b-- > 0;) {
      for (size_t g = plans_[b].size(); g-- > 0;) {
        if (!plans_[b][g].loss) backward(b, g, s, accumulate, batch, dedges, seen[b][g]);
      }
      if (closes) close_strand(b);
    }
    LS_ASSERT(dedges.empty(), "a gradient is left over: " + dedges.begin()->first);
  }

  void add_weights(Instruction& i, size_t b, size_t g) {
    for (const model::ParamSpec& spec : model_.blocks[b].segments()[g]->params()) {
      const int owner =
          spec.tied_to.empty() ? static_cast<int>(b) : model::find_tied(layouts_, spec.tied_to).block;
      i.reads.push_back({program_.blocks[static_cast<size_t>(owner)].compute, "weight." + spec.key});
    }
    for (const model::BufferSpec& spec : model_.blocks[b].segments()[g]->buffers()) {
      auto [it, fresh] = keep_.tables.try_emplace(spec.name, -1);
      if (fresh)
        it->second = persistent(spec.name, BufferKind::state, spec.dtype, spec.shape, static_cast<int>(b));
      i.reads.push_back({it->second, "buffer." + spec.key});
    }
  }

  // Every slice starts from the statistics of the step's beginning and leaves its own until the step's end.
  void add_statistics(Instruction& i, size_t b, size_t g, int s) {
    for (const model::BufferSpec& spec : model_.blocks[b].segments()[g]->buffers()) {
      if (spec.constant || s < 0) continue;
      const int kept = value({spec.key, spec.dtype, spec.shape}, BufferKind::saved, static_cast<int>(b), s);
      i.writes.push_back({kept, "stat." + spec.key});
      statistics_[{b, g}].push_back({kept, fmt::format("stat.{}.{}", spec.key, s)});
    }
  }

  void add_gradients(Instruction& i, size_t b, size_t g, bool accumulate) {
    i.level = level_;
    i.accumulate = accumulate;
    for (const model::ParamSpec& spec : model_.blocks[b].segments()[g]->params()) {
      i.writes.push_back({gradient_at(b), "grad." + spec.key});
    }
  }

  void add_scratch(Instruction& i, const SegmentPlan& plan, Part part, int block, int s) {
    for (const auto& [where, spec] : plan.scratch) {
      if (where == part)
        i.writes.push_back({value(spec, BufferKind::scratch, block, s), "scratch." + spec.name});
    }
  }

  void add_cost(Instruction& i, size_t b, size_t g, Part part) {
    const model::Cost cost = model_.blocks[b].segments()[g]->cost(layout_.slice, part);
    i.flops += cost.flops();
    i.moved_bytes += cost.bytes;
  }

  void forward(size_t b, size_t g, int s, bool accumulate, const std::map<std::string, int>& batch,
               std::map<std::string, int>& edges, std::map<std::string, int>& dedges,
               std::map<std::string, int>& seen) {
    const SegmentPlan& plan = plans_[b][g];
    const int block = static_cast<int>(b);
    Instruction i{
        .op = plan.loss ? Op::loss : Op::forward, .block = block, .segment = static_cast<int>(g), .slice = s};
    const auto read = [&](const std::string& role, int buffer) {
      i.reads.push_back({buffer, role});
      seen[role] = buffer;
    };
    const auto write = [&](const std::string& role, int buffer) {
      i.writes.push_back({buffer, role});
      seen[role] = buffer;
    };
    for (const std::string& field : plan.batch) read("batch." + field, batch.at(field));
    for (const auto* names : {&plan.takes, &plan.passes}) {
      for (const std::string& name : *names) {
        LS_ASSERT(edges.contains(name),
                  fmt::format("b{} needs edge {}, which nothing before it gives", b, name));
        read("in." + name, edges.at(name));
      }
    }
    for (const std::string& name : plan.takes) edges.erase(name);
    for (const ValueSpec& spec : plan.gives) {
      LS_ASSERT(!edges.contains(spec.name), fmt::format("b{} gives {}, which is still there", b, spec.name));
      edges[spec.name] = value(spec, BufferKind::edge, block, s);
      write("out." + spec.name, edges[spec.name]);
    }
    for (const ValueSpec& spec : plan.saves)
      write("save." + spec.name, value(spec, BufferKind::saved, block, s));
    add_scratch(i, plan, Part::forward, block, s);
    add_weights(i, b, g);
    if (layout_.training) add_statistics(i, b, g, s);
    add_cost(i, b, g, Part::forward);
    if (plan.loss) {
      i.writes.push_back({keep_.slice_losses, "loss"});
      i.reads.push_back({keep_.inputs, "inputs"});
      i.reads.push_back({keep_.state, "state"});
    }
    if (plan.loss && layout_.training) {
      for (const std::string& name : plan.takes) {
        const Buffer& like = program_.buffers[static_cast<size_t>(seen.at("in." + name))];
        dedges[name] = value({"d" + name, like.dtype, like.shape}, BufferKind::dedge, block, s);
        i.writes.push_back({dedges[name], "din." + name});
      }
      add_gradients(i, b, g, accumulate);
      add_cost(i, b, g, Part::backward_input);
      add_cost(i, b, g, Part::backward_weight);
    }
    program_.instructions.push_back(std::move(i));
  }

  void backward(size_t b, size_t g, int s, bool accumulate, const std::map<std::string, int>& batch,
                std::map<std::string, int>& dedges, std::map<std::string, int>& seen) {
    const SegmentPlan& plan = plans_[b][g];
    const int block = static_cast<int>(b);
    const bool has_input = !plan.takes.empty() || !plan.passes.empty() || !plan.leaves.empty();
    for (const ValueSpec& spec : plan.gives) seen["dout." + spec.name] = take(dedges, spec.name);
    for (const std::string& name : plan.passes) seen["dout." + name] = take(dedges, name);

    if (has_input) {
      Instruction i{.op = Op::backward_input, .block = block, .segment = static_cast<int>(g), .slice = s};
      for (const std::string& need : plan.input_needs) i.reads.push_back({seen.at(need), need});
      std::map<std::string, std::string> same(plan.same.begin(), plan.same.end());
      std::vector<std::string> names = plan.takes;
      names.insert(names.end(), plan.passes.begin(), plan.passes.end());
      for (const std::string& name : names) {
        if (same.contains("din." + name)) continue;
        const Buffer like = program_.buffers[static_cast<size_t>(seen.at("in." + name))];
        seen["din." + name] = value({"d" + name, like.dtype, like.shape}, BufferKind::dedge, block, s);
      }
      for (const std::string& name : names) {
        const std::string role = "din." + name;
        if (same.contains(role)) seen[role] = seen.at(same.at(role));
        dedges[name] = seen.at(role);
        i.writes.push_back({seen.at(role), role});
      }
      for (const ValueSpec& spec : plan.leaves) {
        seen["left." + spec.name] = value(spec, BufferKind::dedge, block, s);
        i.writes.push_back({seen["left." + spec.name], "left." + spec.name});
      }
      for (const auto& [written, reused] : plan.may_reuse) {
        if (seen.contains(written) && seen.contains(reused))
          i.may_reuse.push_back({seen.at(written), seen.at(reused)});
      }
      add_scratch(i, plan, Part::backward_input, block, s);
      add_weights(i, b, g);
      add_cost(i, b, g, Part::backward_input);
      program_.instructions.push_back(std::move(i));
    }
    if (plan.weight_needs.empty()) return;
    Instruction w{.op = Op::backward_weight, .block = block, .segment = static_cast<int>(g), .slice = s};
    for (const std::string& field : plan.batch) w.reads.push_back({batch.at(field), "batch." + field});
    for (const std::string& need : plan.weight_needs) w.reads.push_back({seen.at(need), need});
    add_scratch(w, plan, Part::backward_weight, block, s);
    add_gradients(w, b, g, accumulate);
    add_cost(w, b, g, Part::backward_weight);
    program_.instructions.push_back(std::move(w));
  }

  static int take(std::map<std::string, int>& dedges, const std::string& name) {
    LS_ASSERT(dedges.contains(name), "no gradient reaches edge " + name);
    const int buffer = dedges.at(name);
    dedges.erase(name);
    return buffer;
  }

  // --- strands: a stack of partial sums -------------------------------------------------------------
  // A strand is summed into the top of the stack; then, block by block as the backward pass leaves them,
  // neighbours that are halves of a node of the tree are joined. Where strands take turns, each has a buffer
  // that lives until it is reduced, and the stack is kept in shares by the reduction.
  void one_strand(int64_t strand) {
    const DataRanks& r = layout_.ranks;
    const int64_t per_strand = layout_.slices / layout_.strands;
    const bool folds =
        !r.exact && !r.turns() && !program_.own_slices.empty();  // the engine's order: one sum for all
    level_ = r.exact && !r.turns() ? stack_.depth() : 0;
    joins_ = r.exact && !r.turns() ? stack_.push({strand, strand + 1}) : 0;
    ++round_;
    std::fill(strand_.begin(), strand_.end(), -1);
    for (int64_t i = 0; i < per_strand; ++i) {
      // The slices of a round without a strand have numbers of their own, below zero.
      const int64_t s = strand >= 0 ? strand * per_strand + i : -2 - i;
      slice(static_cast<int>(s), i > 0 || folds, i + 1 == per_strand);
    }
  }

  int gradient_at(size_t b) {
    if (!layout_.ranks.turns()) return program_.blocks[b].gradients[static_cast<size_t>(level_)];
    int& strand = strand_[b];
    if (strand < 0) {
      strand = program_.add_buffer({.name = fmt::format("b{} gradient of round {}", b, round_),
                                    .kind = BufferKind::gradient,
                                    .shape = {layouts_[b].grad_count},
                                    .block = static_cast<int>(b),
                                    .slice = round_});
    }
    return strand;
  }

  void close_strand(size_t b) {
    const std::vector<int>& block = program_.blocks[b].gradients;
    if (program_.buffers[static_cast<size_t>(block[0])].bytes() == 0) return;
    for (int into = level_ - 1; into >= level_ - joins_; --into) {
      Instruction i{.op = Op::sum, .block = static_cast<int>(b), .level = into, .accumulate = true};
      const int to = block[static_cast<size_t>(into)], from = block[static_cast<size_t>(into) + 1];
      i.reads = {{from, "from"}, {to, "into"}};
      i.writes = {{to, "into"}};
      i.moved_bytes = 3 * program_.buffers[static_cast<size_t>(to)].bytes();
      program_.instructions.push_back(std::move(i));
    }
  }

  // --- the end of the step -------------------------------------------------------------------------
  void finish_step() {
    for (size_t b = 0; b < model_.blocks.size(); ++b) {
      for (size_t k = 0; k < layouts_[b].params.size(); ++k) {
        const model::PlacedParam& param = layouts_[b].params[k];
        if (!param.spec.tied_to.empty()) add_tied(b, static_cast<int>(k), param);
      }
    }
    Instruction norm{.op = Op::norm};
    for (size_t b = 0; b < model_.blocks.size(); ++b) {
      norm.reads.push_back({program_.blocks[b].gradients[0], fmt::format("gradient.{}", b)});
      norm.reads.push_back({program_.blocks[b].chunks, fmt::format("chunks.{}", b)});
      norm.moved_bytes += layouts_[b].value_count * 4;
    }
    norm.reads.push_back({keep_.slice_losses, "losses"});
    norm.reads.push_back({keep_.inputs, "inputs"});
    norm.writes = {{keep_.square_sums, "sums"}, {keep_.state, "state"}};
    program_.instructions.push_back(std::move(norm));
    for (const auto& [where, kept] : statistics_) fold_statistics(where.first, where.second, kept);
    for (size_t b = 0; b < model_.blocks.size(); ++b) {
      if (layouts_[b].value_count == 0) continue;
      const BlockBuffers& keep = program_.blocks[b];
      Instruction update{.op = Op::update, .block = static_cast<int>(b), .predicated = true};
      update.reads = {{keep.gradients[0], "gradient"},
                      {keep.chunks, "chunks"},
                      {keep_.inputs, "inputs"},
                      {keep_.state, "state"}};
      update.writes = {{keep.master, "master"}};
      if (keep.compute != keep.master) update.writes.push_back({keep.compute, "compute"});
      for (size_t k = 0; k < keep.moments.size(); ++k)
        update.writes.push_back({keep.moments[k], fmt::format("moment.{}", k)});
      update.moved_bytes = layouts_[b].value_count * (4 + 8 + 8 * static_cast<int64_t>(keep.moments.size()) +
                                                      (model_.compute == DType::f32 ? 0 : 2));
      program_.instructions.push_back(std::move(update));
    }
  }

  // Behind the norm, because a step whose gradients are not finite leaves statistics as they were.
  void fold_statistics(size_t b, size_t g, const std::vector<Use>& kept) {
    Instruction i{
        .op = Op::sum, .block = static_cast<int>(b), .segment = static_cast<int>(g), .keeps_tape = false};
    i.reads = kept;
    for (const Use& use : kept) i.moved_bytes += program_.buffers[static_cast<size_t>(use.buffer)].bytes();
    for (const model::BufferSpec& spec : model_.blocks[b].segments()[g]->buffers()) {
      if (!spec.constant) i.writes.push_back({keep_.tables.at(spec.name), "buffer." + spec.key});
    }
    i.reads.push_back({keep_.state, "state"});
    program_.instructions.push_back(std::move(i));
  }

  // Two gradient slots, added once: the tied one onto the one of the parameter that holds the values.
  void add_tied(size_t b, int param_index, const model::PlacedParam& param) {
    const model::TiedTo owner = model::find_tied(layouts_, param.spec.tied_to);
    Instruction i{.op = Op::sum, .block = static_cast<int>(b), .segment = -1, .accumulate = true};
    const int into = program_.blocks[static_cast<size_t>(owner.block)].gradients[0];
    i.level = param_index;
    i.reads = {{program_.blocks[b].gradients[0], "tied"}, {into, "into"}};
    i.writes = {{into, "into"}};
    i.moved_bytes = 3 * param.spec.shape.numel() * 4;
    program_.instructions.push_back(std::move(i));
  }

  const model::Model& model_;
  const Layout& layout_;
  std::vector<model::BlockLayout> layouts_;
  std::vector<std::vector<SegmentPlan>> plans_;
  Program program_;
  Persistent keep_;
  std::map<std::pair<size_t, size_t>, std::vector<Use>> statistics_;  // {block, segment}: of every slice
  Stack stack_;                                                       // strands summed in each gradient level
  std::vector<int> strand_;  // [block]: the gradient of the strand at work, where strands take turns
  int level_ = 0, joins_ = 0, round_ = -1;
};

// Rounds in which this rank has no strand keep only what the others need it for.
void drop_idle(Program& program) {
  std::erase_if(program.instructions, [](const Instruction& i) {
    return i.slice < -1 && i.op != Op::gather && i.op != Op::release && i.op != Op::reduce;
  });
}

}  // namespace

Program compile(const model::Model& model, const Layout& layout) {
  LS_ASSERT(layout.kernels != nullptr && layout.slices % layout.strands == 0);
  Program program = Compiler(model, layout).run();
  if (layout.training) rewrite_recompute(program, model, layout.recompute);
  if (layout.ranks.sharded()) rewrite_gather(program, model);
  if (layout.ranks.width() > 1 && layout.training) rewrite_reduce(program, model);
  drop_idle(program);
  rewrite_reuse(program);
  return program;
}

}  // namespace lockstep::program
