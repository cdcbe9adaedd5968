// The backward half of a slice: gradients of what segments took, of their weights, and the sums of a strand.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/program/compiler.h"

namespace lockstep::program {

using model::Part;
using model::SegmentPlan;
using model::ValueSpec;

// For the gradient of `edge`, which `i` took as `name`.
int Compiler::gradient_like(int edge, const std::string& name, const Instruction& i,
                            const SegmentPlan& plan) {
  const Buffer& like = program_.buffers[static_cast<size_t>(edge)];
  const bool wide = std::count(plan.wide_gradients.begin(), plan.wide_gradients.end(), name) > 0;
  return value({"d" + name, wide ? device::DType::f32 : like.dtype, like.shape}, BufferKind::dedge, i.block,
               i.slice);
}

// The gradients of what the segment gave.
void Compiler::take_gradients(size_t b, size_t g, Slice& s) {
  const SegmentPlan& plan = plans_[b][g];
  const auto take = [&](const std::string& name) {
    LS_ASSERT(s.flow().dedges.contains(name), "no gradient reaches edge " + name);
    s.seen[b][g][as(Role::dout, name)] = s.flow().dedges.at(name);
    s.flow().dedges.erase(name);
  };
  if (!backward_[b][g].any()) return;
  for (const ValueSpec& spec : plan.outputs) {
    if (spec.gradient) take(spec.name);
  }
  if (!backward_[b][g].input) return;
  for (const std::string& name : plan.passes) take(name);
}

void Compiler::backward_input(size_t b, size_t g, Slice& s) {
  const SegmentPlan& plan = plans_[b][g];
  Roles& seen = s.seen[b][g];
  take_gradients(b, g, s);
  if (!backward_[b][g].input) return;
  prepare(b, g, s, Part::backward_input);
  Instruction i{.what = RunSegment{Pass::backward_input},
                .block = static_cast<int>(b),
                .segment = static_cast<int>(g),
                .slice = s.number};
  for (const std::string& need : plan.input_needs) i.reads.push_back(named(seen.at(need), need));
  give_gradients(i, b, g, s);
  for (const ValueSpec& spec : plan.leaves) {
    const std::string role = as(Role::left, spec.name);
    seen[role] = value(spec, BufferKind::dedge, i.block, s.number);
    i.writes.push_back({seen[role], Role::left, spec.name});
  }
  add_may_reuse(i, plan, seen);
  for (const model::Remake& remake : plan.remakes)
    i.may_remake.push_back({seen.at(remake.value), Role::again, std::string(name_in(remake.value))});
  add_scratch(i, plan, Part::backward_input, i.block, s.number);
  add_weights(i, b, g);
  add_prepared(i, b, g, Part::backward_input);
  add_cost(i, b, g, Part::backward_input);
  if (plan.ring) {
    ring_backward(s, b, g, std::move(i));
  } else {
    program_.instructions.push_back(std::move(i));
  }
  seams_backward(s, b, g);  // at once, so that the collective runs beside the weights' gradients
}

// The gradients of what the segment took: buffers of their own first, then those that share one.
void Compiler::give_gradients(Instruction& i, size_t b, size_t g, Slice& s) {
  const SegmentPlan& plan = plans_[b][g];
  Roles& seen = s.seen[b][g];
  const std::map<std::string, std::string> same(plan.same.begin(), plan.same.end());
  std::vector<std::string> names = plan.inputs;
  names.insert(names.end(), plan.passes.begin(), plan.passes.end());
  std::erase_if(names, [&](const std::string& name) { return without_gradient_.contains({b, g, name}); });
  for (const std::string& name : names) {
    const std::string role = as(Role::din, name);
    if (!same.contains(role)) seen[role] = gradient_like(seen.at(as(Role::in, name)), name, i, plan);
  }
  for (const std::string& name : names) {
    const std::string role = as(Role::din, name);
    if (same.contains(role)) seen[role] = seen.at(same.at(role));
    if (!unread_.contains({b, g, name})) s.flow().dedges[name] = seen.at(role);
    i.writes.push_back({seen.at(role), Role::din, name});
  }
}

// Of the edges that came first to this segment.
void Compiler::seams_backward(Slice& s, size_t b, size_t g) {
  const auto first = s.first_readers.find({b, g});
  if (first == s.first_readers.end()) return;
  for (const auto& [name, edge] : first->second) {
    const auto gradient = s.flow().dedges.find(name);
    if (gradient != s.flow().dedges.end()) gradient->second = seam_backward(s, edge, gradient->second);
  }
}

void Compiler::backward_weight(size_t b, size_t g, Slice& s) {
  const SegmentPlan& plan = plans_[b][g];
  const int block = static_cast<int>(b);
  if (!backward_[b][g].weight) return;
  Instruction w{.what = RunSegment{Pass::backward_weight},
                .block = block,
                .segment = static_cast<int>(g),
                .slice = s.number};
  for (const std::string& field : plan.batch) w.reads.push_back({s.batch.at(field), Role::batch, field});
  for (const std::string& need : plan.weight_needs) w.reads.push_back(named(s.seen[b][g].at(need), need));
  add_scratch(w, plan, Part::backward_weight, block, s.number);
  add_gradients(w, b, g, s);
  add_cost(w, b, g, Part::backward_weight);
  program_.instructions.push_back(std::move(w));
}

// --- what an instruction needs beside its edges ------------------------------------------------------

// --- gradients of a strand ---------------------------------------------------------------------------

int Compiler::gradient_at(size_t b, const Slice& s) {
  if (!layout_.ranks.round_robin())
    return program_.blocks[b].gradients[static_cast<size_t>(strand_of(b, strands_[s.strand]).level)];
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

// Of parameters whose gradients tensor ranks have addends of, where the numeric contract says in which order
// they are added: before strands are.
void Compiler::sum_partials(size_t b, const Slice& s) {
  if (!model_.parts.fixes_products() || model_.parts.tensor == 1 || idle(s.number)) return;
  int64_t most = 0;
  for (const model::PlacedParam& param : layouts_[b].params) {
    if (param.spec.partial && !param.spec.train.frozen) most = std::max(most, param.spec.shape.numel());
  }
  if (most == 0) return;
  Instruction i{.what = SumPartials{.tree = true},
                .lane = Lane::reduce,
                .block = static_cast<int>(b),
                .among = Among::tensor};
  i.reads = {{gradient_at(b, s), Role::partial, {}, i.block, 0}};
  i.writes = i.reads;
  i.writes.push_back({addend_staging(most * 4 * model_.parts.tensor, Among::tensor), Role::staging});
  i.moved_bytes = most * 4;
  program_.instructions.push_back(std::move(i));
}

// Context ranks hold addends of all gradients: of the pieces of sequences that they work on.
void Compiler::sum_pieces(size_t b, const Slice& s) {
  if (!model_.parts.fixes_sequences() || model_.parts.context == 1 || idle(s.number)) return;
  const int gradient = gradient_at(b, s);
  const int64_t bytes = program_.buffers[static_cast<size_t>(gradient)].bytes();
  Instruction i{.what = SumPartials{.tree = true},
                .lane = Lane::reduce,
                .block = static_cast<int>(b),
                .among = Among::context};
  i.reads = {{gradient, Role::partial, {}, i.block, 0}};
  i.writes = i.reads;
  i.writes.push_back({addend_staging(bytes, Among::context), Role::staging});
  i.moved_bytes = bytes;
  program_.instructions.push_back(std::move(i));
}

void Compiler::close_strand(size_t b, const Slice& s) {
  const std::vector<int>& block = program_.blocks[b].gradients;
  const Strand strand = strand_of(b, strands_[s.strand]);
  if (program_.buffers[static_cast<size_t>(block[0])].bytes() == 0) return;
  sum_partials(b, s);
  sum_pieces(b, s);
  for (int into = strand.level - 1; into >= strand.level - strand.joins; --into) {
    Instruction i{.what = JoinStrands{}, .block = static_cast<int>(b)};
    const int to = block[static_cast<size_t>(into)], from = block[static_cast<size_t>(into) + 1];
    i.reads = {{from, Role::from}, {to, Role::into}};
    i.writes = {{to, Role::into}};
    i.moved_bytes = 3 * program_.buffers[static_cast<size_t>(to)].bytes();
    program_.instructions.push_back(std::move(i));
  }
}

}  // namespace lockstep::program
