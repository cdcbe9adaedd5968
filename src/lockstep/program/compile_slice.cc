// One slice through the blocks of one chunk: forward, loss, backward.
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
void Compiler::backward_turn(Slice& s, int chunk, bool inputs, bool weights) {
  const Piece blocks = piece(chunk);
  s.chunk = chunk;
  if (inputs && !layout_.stages.last_piece(chunk)) cross_back(s);
  for (int n = blocks.end - 1; n >= blocks.begin; --n) {
    const auto b = static_cast<size_t>(n);
    // Where the loss leaves gradients, the block's others come in the same turn.
    const bool here = plans_[b].back().loss ? inputs : weights;
    for (size_t g = plans_[b].size(); g-- > 0;) {
      if (plans_[b][g].loss) {
        if (inputs) forward(b, g, s);
        continue;
      }
      if (inputs) backward_input(b, g, s);
      if (here) backward_weight(b, g, s);
    }
    if (here && s.last) close_strand(b, s);
  }
  if (inputs && !layout_.stages.first_piece(chunk)) send_gradients(s, chunk);
}

// What the segments of this chunk read of the batch.
void Compiler::load(Slice& s, int chunk) {
  Instruction load{.op = Op::load, .lane = Lane::host, .slice = s.number};
  const Piece blocks = piece(chunk);
  const int64_t tokens = layout_.slice.seq_len;
  program_.input_words = layout_.slice.samples * (model_.input_words > 0 ? model_.input_words : tokens);
  program_.label_words = layout_.slice.samples * (model_.label_words > 0 ? model_.label_words : tokens);
  for (const auto& [field, words] :
       {std::pair("inputs", program_.input_words), std::pair("labels", program_.label_words)}) {
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
    load.writes.push_back({s.batch[field], field});
  }
  if (!load.writes.empty()) program_.instructions.push_back(std::move(load));
}

// --- one segment -----------------------------------------------------------------------------------

void Compiler::forward(size_t b, size_t g, Slice& s) {
  const SegmentPlan& plan = plans_[b][g];
  const int block = static_cast<int>(b);
  Roles& seen = s.seen[b][g];
  Instruction i{.op = plan.loss ? Op::loss : Op::forward,
                .block = block,
                .segment = static_cast<int>(g),
                .slice = s.number};
  const auto write = [&](const std::string& role, int buffer) {
    i.writes.push_back({buffer, role});
    seen[role] = buffer;
  };
  for (const std::string& field : plan.batch) {
    i.reads.push_back({s.batch.at(field), "batch." + field});
    seen["batch." + field] = s.batch.at(field);
  }
  for (const auto* names : {&plan.takes, &plan.passes}) {
    for (const std::string& name : *names) {
      LS_ASSERT(s.flow().edges.contains(name),
                fmt::format("b{} needs edge {}, which nothing before it gives", b, name));
      Edge& edge = s.flow().edges.at(name);
      i.reads.push_back({edge.buffer, "in." + name});
      seen["in." + name] = edge.buffer;
      if (!edge.gradient) without_gradient_.insert({b, g, name});
      if (!edge.read && edge.seam != model::Seam::none) s.first_readers[{b, g}][name] = edge;
      edge.read = true;
    }
  }
  for (const std::string& name : plan.takes) s.flow().edges.erase(name);
  for (const ValueSpec& spec : plan.gives) {
    LS_ASSERT(!s.flow().edges.contains(spec.name),
              fmt::format("b{} gives {}, which is still there", b, spec.name));
    const int buffer = value(spec, BufferKind::edge, block, s.number);
    s.flow().edges[spec.name] = {
        .buffer = buffer, .gradient = spec.gradient, .block = block, .segment = static_cast<int>(g)};
    write("out." + spec.name, buffer);
  }
  for (const ValueSpec& spec : plan.saves)
    write("save." + spec.name, value(spec, BufferKind::saved, block, s.number));
  add_scratch(i, plan, Part::forward, block, s.number);
  add_weights(i, b, g);
  if (layout_.training) add_statistics(i, b, g, s.number);
  add_cost(i, b, g, Part::forward);
  if (plan.loss) {
    i.writes.push_back({keep_.slice_losses, "loss"});
    i.reads.push_back({keep_.inputs, "inputs"});
    i.reads.push_back({keep_.state, "state"});
  }
  if (plan.loss && layout_.training) {
    for (const std::string& name : plan.takes) {
      if (without_gradient_.contains({b, g, name})) continue;
      const Buffer& like = program_.buffers[static_cast<size_t>(seen.at("in." + name))];
      const int gradient = value({"d" + name, like.dtype, like.shape}, BufferKind::dedge, block, s.number);
      s.flow().dedges[name] = seen["din." + name] = gradient;
      i.writes.push_back({gradient, "din." + name});
    }
    for (const auto& [written, reused] : plan.may_reuse) {
      if (seen.contains(written) && seen.contains(reused))
        i.may_reuse.push_back({seen.at(written), seen.at(reused)});
    }
    add_gradients(i, b, g, s);
    add_cost(i, b, g, Part::backward_input);
    add_cost(i, b, g, Part::backward_weight);
  }
  if (plan.ring) {
    ring_forward(s, b, g, std::move(i));
  } else {
    program_.instructions.push_back(std::move(i));
  }
  for (const auto& [name, seam] : plan.seams) seam_forward(s, b, g, name, seam);
}

// The gradients of what the segment gave.
void Compiler::take_gradients(size_t b, size_t g, Slice& s) {
  const SegmentPlan& plan = plans_[b][g];
  const auto take = [&](const std::string& name) {
    LS_ASSERT(s.flow().dedges.contains(name), "no gradient reaches edge " + name);
    s.seen[b][g]["dout." + name] = s.flow().dedges.at(name);
    s.flow().dedges.erase(name);
  };
  for (const ValueSpec& spec : plan.gives) {
    if (spec.gradient) take(spec.name);
  }
  for (const std::string& name : plan.passes) take(name);
}

void Compiler::backward_input(size_t b, size_t g, Slice& s) {
  const SegmentPlan& plan = plans_[b][g];
  const int block = static_cast<int>(b);
  Roles& seen = s.seen[b][g];
  take_gradients(b, g, s);
  if (plan.takes.empty() && plan.passes.empty() && plan.leaves.empty()) return;
  Instruction i{.op = Op::backward_input, .block = block, .segment = static_cast<int>(g), .slice = s.number};
  for (const std::string& need : plan.input_needs) i.reads.push_back({seen.at(need), need});
  const std::map<std::string, std::string> same(plan.same.begin(), plan.same.end());
  std::vector<std::string> names = plan.takes;
  names.insert(names.end(), plan.passes.begin(), plan.passes.end());
  std::erase_if(names, [&](const std::string& name) { return without_gradient_.contains({b, g, name}); });
  for (const std::string& name : names) {
    if (same.contains("din." + name)) continue;
    const Buffer like = program_.buffers[static_cast<size_t>(seen.at("in." + name))];
    seen["din." + name] = value({"d" + name, like.dtype, like.shape}, BufferKind::dedge, block, s.number);
  }
  for (const std::string& name : names) {
    const std::string role = "din." + name;
    if (same.contains(role)) seen[role] = seen.at(same.at(role));
    s.flow().dedges[name] = seen.at(role);
    i.writes.push_back({seen.at(role), role});
  }
  for (const ValueSpec& spec : plan.leaves) {
    seen["left." + spec.name] = value(spec, BufferKind::dedge, block, s.number);
    i.writes.push_back({seen["left." + spec.name], "left." + spec.name});
  }
  for (const auto& [written, reused] : plan.may_reuse) {
    if (seen.contains(written) && seen.contains(reused))
      i.may_reuse.push_back({seen.at(written), seen.at(reused)});
  }
  add_scratch(i, plan, Part::backward_input, block, s.number);
  add_weights(i, b, g);
  add_cost(i, b, g, Part::backward_input);
  if (plan.ring) {
    ring_backward(s, b, g, std::move(i));
  } else {
    program_.instructions.push_back(std::move(i));
  }
  // At once, so that the collective runs beside the weights' gradients.
  if (const auto first = s.first_readers.find({b, g}); first != s.first_readers.end()) {
    for (const auto& [name, edge] : first->second)
      s.flow().dedges.at(name) = seam_backward(s, edge, s.flow().dedges.at(name));
  }
}

void Compiler::backward_weight(size_t b, size_t g, Slice& s) {
  const SegmentPlan& plan = plans_[b][g];
  const int block = static_cast<int>(b);
  if (plan.weight_needs.empty()) return;
  Instruction w{.op = Op::backward_weight, .block = block, .segment = static_cast<int>(g), .slice = s.number};
  for (const std::string& field : plan.batch) w.reads.push_back({s.batch.at(field), "batch." + field});
  for (const std::string& need : plan.weight_needs) w.reads.push_back({s.seen[b][g].at(need), need});
  add_scratch(w, plan, Part::backward_weight, block, s.number);
  add_gradients(w, b, g, s);
  add_cost(w, b, g, Part::backward_weight);
  program_.instructions.push_back(std::move(w));
}

// --- what an instruction needs beside its edges ------------------------------------------------------

void Compiler::add_weights(Instruction& i, size_t b, size_t g) {
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
void Compiler::add_statistics(Instruction& i, size_t b, size_t g, int slice) {
  for (const model::BufferSpec& spec : model_.blocks[b].segments()[g]->buffers()) {
    if (spec.constant || slice < 0) continue;
    const int kept = value({spec.key, spec.dtype, spec.shape}, BufferKind::saved, static_cast<int>(b), slice);
    i.writes.push_back({kept, "stat." + spec.key});
    statistics_[{b, g}].push_back({kept, fmt::format("stat.{}.{}", spec.key, slice)});
  }
}

void Compiler::add_gradients(Instruction& i, size_t b, size_t g, const Slice& s) {
  const DataRanks& r = layout_.ranks;
  const bool folds = !r.exact && !r.turns() && s.strand > 0;  // the engine's order: one sum for all
  i.level = strands_[s.strand].level;
  i.accumulate = !s.first || folds;
  for (const model::ParamSpec& spec : model_.blocks[b].segments()[g]->params()) {
    i.writes.push_back({gradient_at(b, s), "grad." + spec.key});
  }
}

void Compiler::add_scratch(Instruction& i, const SegmentPlan& plan, Part part, int block, int slice) {
  for (const auto& [where, spec] : plan.scratch) {
    if (where == part)
      i.writes.push_back({value(spec, BufferKind::scratch, block, slice), "scratch." + spec.name});
  }
}

void Compiler::add_cost(Instruction& i, size_t b, size_t g, Part part) {
  const model::Cost cost = model_.blocks[b].segments()[g]->cost(layout_.slice, part);
  i.flops += cost.flops();
  i.moved_bytes += cost.bytes;
}

// --- gradients of a strand ---------------------------------------------------------------------------

int Compiler::gradient_at(size_t b, const Slice& s) {
  if (!layout_.ranks.turns())
    return program_.blocks[b].gradients[static_cast<size_t>(strands_[s.strand].level)];
  auto [it, fresh] = round_.try_emplace({b, s.strand}, -1);
  if (fresh) {
    it->second = program_.add_buffer({.name = fmt::format("b{} gradient of round {}", b, s.strand),
                                      .kind = BufferKind::gradient,
                                      .shape = {layouts_[b].grad_count},
                                      .block = static_cast<int>(b),
                                      .slice = static_cast<int>(s.strand)});
  }
  return it->second;
}

void Compiler::close_strand(size_t b, const Slice& s) {
  const std::vector<int>& block = program_.blocks[b].gradients;
  const Strand& strand = strands_[s.strand];
  if (program_.buffers[static_cast<size_t>(block[0])].bytes() == 0) return;
  for (int into = strand.level - 1; into >= strand.level - strand.joins; --into) {
    Instruction i{.op = Op::sum, .block = static_cast<int>(b), .level = into, .accumulate = true};
    const int to = block[static_cast<size_t>(into)], from = block[static_cast<size_t>(into) + 1];
    i.reads = {{from, "from"}, {to, "into"}};
    i.writes = {{to, "into"}};
    i.moved_bytes = 3 * program_.buffers[static_cast<size_t>(to)].bytes();
    program_.instructions.push_back(std::move(i));
  }
}

}  // namespace lockstep::program
