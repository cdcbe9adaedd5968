// One slice through the blocks of one chunk: forward and loss here, backward in compile_backward.cc.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/program/compiler.h"

namespace lockstep::program {

using model::Part;
using model::SegmentPlan;
using model::ValueSpec;

int Compiler::value(const ValueSpec& spec, BufferKind kind, int block, int slice) {
  return program_.add_buffer({.name = fmt::format("b{} s{} {}", block, slice, spec.name),
                              .kind = kind,
                              .dtype = spec.dtype,
                              .shape = spec.shape,
                              .block = block,
                              .slice = slice,
                              .external = spec.external});
}

// --- turns -----------------------------------------------------------------------------------------

void Compiler::forward_turn(Slice& s, int chunk) {
  const Piece blocks = piece(chunk);
  s.chunk = chunk;
  load(s, chunk);
  for (int b = blocks.begin; b < blocks.end; ++b) {
    const auto block = static_cast<size_t>(b);
    for (size_t g = 0; g < plans_[block].size(); ++g) {
      if (!plans_[block][g].loss || !layout_.training) forward(block, g, s);
    }
  }
  if (!layout_.stages.last_piece(chunk)) send_edges(s, chunk);
}

// The loss belongs to the backward pass, because it leaves gradients: then those of a block are folded in one
// order, whatever the schedule is.
void Compiler::backward_turn(Slice& s, int chunk, Backward work) {
  const Piece blocks = piece(chunk);
  s.chunk = chunk;
  if (work.input && !layout_.stages.last_piece(chunk)) cross_back(s);
  for (int n = blocks.end - 1; n >= blocks.begin; --n) {
    const auto b = static_cast<size_t>(n);
    // Where the loss leaves gradients, the block's others come in the same turn.
    const bool here = plans_[b].back().loss ? work.input : work.weight;
    for (size_t g = plans_[b].size(); g-- > 0;) {
      if (plans_[b][g].loss) {
        if (work.input) forward(b, g, s);
        continue;
      }
      if (work.input) backward_input(b, g, s);
      if (here) backward_weight(b, g, s);
    }
    if (here && s.last) close_strand(b, s);
  }
  if (work.input && !layout_.stages.first_piece(chunk)) send_gradients(s, chunk);
}

// What the segments of this chunk read of the batch.
void Compiler::load(Slice& s, int chunk) {
  Instruction load{.what = LoadSlice{}, .lane = Lane::host, .slice = s.number};
  const Piece blocks = piece(chunk);
  const int64_t tokens = layout_.slice.seq_len;
  program_.input_words = layout_.slice.samples * (model_.input_words > 0 ? model_.input_words : tokens);
  program_.label_words = layout_.slice.samples * (model_.label_words > 0 ? model_.label_words : tokens);
  program_.document_words = model_.documents ? layout_.slice.samples * tokens : 0;
  const int64_t whole = tokens * model_.parts.context;  // where attention sees all tokens of some heads
  program_.whole_document_words = reads_field("whole_documents") ? layout_.slice.samples * whole : 0;
  // One behind the last; as many for each sample.
  program_.offset_words =
      reads_field("offsets") ? layout_.slice.samples * (kernels::most_documents(whole) + 1) : 0;
  program_.reference_words = model_.pairs ? layout_.slice.samples * 2 : 0;  // doubles
  for (const auto& [field, words] :
       {std::pair("inputs", program_.input_words), std::pair("labels", program_.label_words),
        std::pair("documents", program_.document_words), std::pair("offsets", program_.offset_words),
        std::pair("whole_documents", program_.whole_document_words),
        std::pair("references", program_.reference_words)}) {
    bool wanted = false;
    for (int b = blocks.begin; b < blocks.end; ++b) {
      for (const SegmentPlan& plan : plans_[static_cast<size_t>(b)])
        wanted |= std::count(plan.batch.begin(), plan.batch.end(), field) > 0;
    }
    if (!wanted) continue;
    s.batch[field] = program_.add_buffer({.name = fmt::format("s{} {}", s.number, field),
                                          .kind = BufferKind::batch,
                                          .dtype = device::DType::i32,
                                          .shape = {layout_.slice.samples, words / layout_.slice.samples},
                                          .slice = s.number});
    load.writes.push_back({s.batch[field], Role::field, field});
  }
  if (!load.writes.empty()) program_.instructions.push_back(std::move(load));
}

// Whether any segment of this rank reads this field of the batch.
bool Compiler::reads_field(const char* field) const {
  for (const std::vector<SegmentPlan>& block : plans_) {
    for (const SegmentPlan& plan : block) {
      if (std::count(plan.batch.begin(), plan.batch.end(), field) > 0) return true;
    }
  }
  return false;
}

// --- one segment -----------------------------------------------------------------------------------

void Compiler::forward(size_t b, size_t g, Slice& s) {
  const SegmentPlan& plan = plans_[b][g];
  prepare(b, g, s, Part::forward);
  Instruction i{.what = RunSegment{plan.loss ? Pass::loss : Pass::forward},
                .block = static_cast<int>(b),
                .segment = static_cast<int>(g),
                .slice = s.number};
  if (layout_.training && !plan.loss && !backward_[b][g].any()) i.get<RunSegment>()->keeps_tape = false;
  take_values(i, b, g, s);
  give_values(i, b, g, s);
  add_scratch(i, plan, Part::forward, i.block, s.number);
  add_weights(i, b, g);
  add_prepared(i, b, g, Part::forward);
  if (layout_.training) add_statistics(i, b, g, s.number);
  add_cost(i, b, g, Part::forward);
  if (plan.loss) add_loss(i, b, g, s);
  if (plan.ring) {
    ring_forward(s, b, g, std::move(i));
  } else if (!plan.rounds.empty()) {
    loss_in_rounds(b, g, i);
  } else {
    program_.instructions.push_back(std::move(i));
  }
  if (plan.loss && layout_.training) seams_backward(s, b, g);
  for (const auto& [name, seam] : plan.seams) seam_forward(s, b, g, name, seam);
}

// What forward reads of the batch and of the segments before it.
void Compiler::take_values(Instruction& i, size_t b, size_t g, Slice& s) {
  const SegmentPlan& plan = plans_[b][g];
  Roles& seen = s.seen[b][g];
  const auto read = [&](const std::string& role, int buffer) {
    seen[role] = buffer;
    i.reads.push_back(named(buffer, role));
  };
  for (const std::string& field : plan.batch) read(as(Role::batch, field), s.batch.at(field));
  for (const auto* names : {&plan.inputs, &plan.passes}) {
    for (const std::string& name : *names) {
      LS_ASSERT(s.flow().edges.contains(name),
                fmt::format("b{} needs edge {}, which nothing before it gives", b, name));
      Edge& edge = s.flow().edges.at(name);
      read(as(Role::in, name), edge.buffer);
      if (!edge.gradient) without_gradient_.insert({b, g, name});
      if (!edge.read && edge.seam != model::Seam::none) s.first_readers[{b, g}][name] = edge;
      edge.read = true;
    }
  }
  for (const std::string& name : plan.inputs) s.flow().edges.erase(name);
}

// What forward leaves for the segments behind it, and for its own way back.
void Compiler::give_values(Instruction& i, size_t b, size_t g, Slice& s) {
  const SegmentPlan& plan = plans_[b][g];
  Roles& seen = s.seen[b][g];
  const auto write = [&](const std::string& role, int buffer) {
    seen[role] = buffer;
    i.writes.push_back(named(buffer, role));
  };
  for (const ValueSpec& spec : plan.outputs) {
    LS_ASSERT(!s.flow().edges.contains(spec.name),
              fmt::format("b{} gives {}, which is still there", b, spec.name));
    const int buffer = value(spec, BufferKind::edge, i.block, s.number);
    s.flow().edges[spec.name] = {
        .buffer = buffer, .gradient = spec.gradient, .block = i.block, .segment = i.segment};
    write(as(Role::out, spec.name), buffer);
  }
  for (const ValueSpec& spec : plan.saves)
    write(as(Role::save, spec.name), value(spec, BufferKind::saved, i.block, s.number));
}

// The loss leaves its number and, in training, all gradients at once: it has no way back of its own.
void Compiler::add_loss(Instruction& i, size_t b, size_t g, Slice& s) {
  const SegmentPlan& plan = plans_[b][g];
  Roles& seen = s.seen[b][g];
  i.writes.push_back({keep_.slice_losses, Role::loss});
  i.reads.push_back({keep_.inputs, Role::inputs});
  i.reads.push_back({keep_.state, Role::state});
  if (!layout_.training) return;
  bool needed = false;
  for (const std::string& name : plan.inputs) {
    if (without_gradient_.contains({b, g, name})) continue;
    const int gradient = gradient_like(seen.at(as(Role::in, name)), name, i, plan);
    seen[as(Role::din, name)] = gradient;
    i.writes.push_back({gradient, Role::din, name});
    if (unread_.contains({b, g, name})) continue;
    s.flow().dedges[name] = gradient;
    needed = true;
  }
  i.get<RunSegment>()->input_gradient = needed;
  add_may_reuse(i, plan, seen);
  if (needed) add_cost(i, b, g, Part::backward_input);
  if (add_gradients(i, b, g, s)) add_cost(i, b, g, Part::backward_weight);
}

// Once a step, before the segment's first slice. Where weights are gathered for a while only, so is what is
// made of them: for each slice, and again for its way back.
void Compiler::prepare(size_t b, size_t g, const Slice& s, Part part) {
  const SegmentPlan& plan = plans_[b][g];
  const bool shared_out = layout_.ranks.sharded() && layout_.ranks.zero == 3;
  const bool there = prepared_.contains({b, g}) && !shared_out;
  if (plan.prepares.empty() || there || (part != Part::forward && !shared_out)) return;
  Instruction i{.what = RunSegment{Pass::prepare},
                .block = static_cast<int>(b),
                .segment = static_cast<int>(g),
                .slice = s.number};
  Roles made;
  for (const auto& [read_by, spec] : plan.prepares) {
    const int buffer = value(spec, BufferKind::compute, static_cast<int>(b), s.number);
    made[spec.name] = buffer;
    i.writes.push_back({buffer, Role::prep, spec.name});
    i.moved_bytes +=
        3 * program_.buffers[static_cast<size_t>(buffer)].bytes();  // written, and read from bf16
  }
  add_weights(i, b, g);
  program_.instructions.push_back(std::move(i));
  prepared_[{b, g}] = std::move(made);
}

void Compiler::add_prepared(Instruction& i, size_t b, size_t g, Part part) {
  for (const auto& [read_by, spec] : plans_[b][g].prepares) {
    if (read_by == part) i.reads.push_back({prepared_.at({b, g}).at(spec.name), Role::prep, spec.name});
  }
}

void Compiler::add_weights(Instruction& i, size_t b, size_t g) {
  for (const model::ParamSpec& spec : model_.blocks[b].params_of(g)) {
    const int owner = spec.tied_to.empty() ? static_cast<int>(b) : model::find_tied(layouts_, spec).block;
    const BlockBuffers& keep = program_.blocks[static_cast<size_t>(owner)];
    const model::Stored stored = model::stored_as(spec);
    i.reads.push_back(
        {stored == model::Stored::trained ? keep.compute : keep.stored(stored), Role::weight, spec.key});
  }
  for (const model::BufferSpec& spec : model_.blocks[b].segments()[g]->buffers()) {
    auto [it, fresh] = keep_.tables.try_emplace(spec.name, -1);
    if (fresh)
      it->second = persistent(spec.name, BufferKind::state, spec.dtype, spec.shape, static_cast<int>(b));
    i.reads.push_back({it->second, Role::buffer, spec.key});
  }
}

// Every slice starts from the statistics of the step's beginning and leaves its own until the step's end.
void Compiler::add_statistics(Instruction& i, size_t b, size_t g, int slice) {
  for (const model::BufferSpec& spec : model_.blocks[b].segments()[g]->buffers()) {
    if (spec.constant || idle(slice)) continue;
    const int kept = value({spec.key, spec.dtype, spec.shape}, BufferKind::saved, static_cast<int>(b), slice);
    i.writes.push_back({kept, Role::stat, spec.key});
    statistics_[{b, g}].push_back({.buffer = kept, .role = Role::stat, .name = spec.key, .number = slice});
  }
}

// Of those that are trained; false: there are none.
bool Compiler::add_gradients(Instruction& i, size_t b, size_t g, const Slice& s) {
  const DataRanks& r = layout_.ranks;
  const bool folds = !r.exact && !r.round_robin() && s.strand > 0;  // the engine's order: one sum for all
  i.get<RunSegment>()->accumulate = !s.first || folds || strand_of(b, strands_[s.strand]).onto;
  bool any = false;
  for (const model::ParamSpec& spec : model_.blocks[b].params_of(g)) {
    if (spec.train.frozen) continue;
    i.writes.push_back({gradient_at(b, s), Role::grad, spec.key});
    any = true;
  }
  return any;
}

void Compiler::add_may_reuse(Instruction& i, const SegmentPlan& plan, const Roles& seen) {
  for (const auto& [written, reused] : plan.may_reuse) {
    if (seen.contains(written) && seen.contains(reused))
      i.may_reuse.push_back({seen.at(written), seen.at(reused)});
  }
}

void Compiler::add_scratch(Instruction& i, const SegmentPlan& plan, Part part, int block, int slice) {
  for (const auto& [where, spec] : plan.scratch) {
    if (where == part)
      i.writes.push_back({value(spec, BufferKind::scratch, block, slice), Role::scratch, spec.name});
  }
  if (plan.workspace == 0) return;
  const ValueSpec workspace{"workspace", device::DType::u8, {plan.workspace}};
  i.writes.push_back({value(workspace, BufferKind::workspace, block, slice), Role::workspace});
}

void Compiler::add_cost(Instruction& i, size_t b, size_t g, Part part) {
  auto& known = costs_[{b, g, part}];
  if (!known) {
    known = std::make_shared<const model::Cost>(model_.blocks[b].cost_of(g, layout_.slice, part));
  }
  i.flops += known->flops();
  i.fp8_flops += known->fp8_flops();
  i.moved_bytes += known->bytes;
  i.work = i.work ? std::make_shared<const model::Cost>(model::sum(*i.work, *known)) : known;
}

}  // namespace lockstep::program
