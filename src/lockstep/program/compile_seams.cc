// Between segments, and between the parts of one: what other ranks hold comes in, what they need goes out.
// The only place where collectives of tensor and context ranks inside a slice are put into the list.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/device/alignment.h"
#include "lockstep/program/compiler.h"

namespace lockstep::program {

using device::Shape;
using model::Seam;
using model::ValueSpec;

namespace {

// Rows times `rows`, columns times `columns`, either of which may be one part of so many.
Shape scaled(const Shape& shape, int rows, int row_parts, int columns = 1, int column_parts = 1) {
  return {shape[0] * rows / row_parts, shape[1] * columns / column_parts};
}

Shape behind(Seam seam, const Shape& shape, const model::Parts& parts) {
  switch (seam) {
    case Seam::gather_tokens:
      return scaled(shape, parts.tensor, 1);
    case Seam::scatter_tokens:
      return scaled(shape, 1, parts.tensor);
    case Seam::to_heads:
      return scaled(shape, parts.context, 1, 1, parts.context);
    case Seam::to_tokens:
      return scaled(shape, 1, parts.context, parts.context, 1);
    case Seam::gather_pieces:
      return scaled(shape, parts.context, 1);
    case Seam::scatter_pieces:
      return scaled(shape, 1, parts.context);
    default:
      return shape;
  }
}

Seam counterpart(Seam seam) {
  switch (seam) {
    case Seam::sum:
      return Seam::spread;
    case Seam::sum_both:
      return Seam::sum_both;
    case Seam::spread:
      return Seam::sum;
    case Seam::gather_tokens:
      return Seam::scatter_tokens;
    case Seam::scatter_tokens:
      return Seam::gather_tokens;
    case Seam::to_heads:
      return Seam::to_tokens;
    case Seam::to_tokens:
      return Seam::to_heads;
    case Seam::gather_pieces:
      return Seam::scatter_pieces;
    case Seam::scatter_pieces:
      return Seam::gather_pieces;
    case Seam::none:
      break;
  }
  return Seam::none;
}

bool of_pieces(Seam seam) { return seam == Seam::gather_pieces || seam == Seam::scatter_pieces; }
bool gathers(Seam seam) { return seam == Seam::gather_tokens || seam == Seam::gather_pieces; }
bool scatters(Seam seam) { return seam == Seam::scatter_tokens || seam == Seam::scatter_pieces; }
bool sums(Seam seam) { return seam == Seam::sum || seam == Seam::sum_both || scatters(seam); }
// Over the tree, addends of edges that have the model's own type are fp32; what is summed both ways is fp32
// anyway, and stays so.
bool rounds_sum(Seam seam) { return sums(seam) && seam != Seam::sum_both; }

}  // namespace

// --- between segments --------------------------------------------------------------------------------

Instruction Compiler::seam_instruction(Operation what, Among among, int block, int segment, int slice) const {
  return {
      .what = what, .lane = Lane::seam, .block = block, .segment = segment, .slice = slice, .among = among};
}

// Puts the collective of `seam` on `buffer` into the list; returns what holds the result.
int Compiler::cross(Seam seam, int buffer, int block, int segment, int slice) {
  const Buffer from = program_.buffers[static_cast<size_t>(buffer)];
  const bool tree = of_pieces(seam) || model_.parts.fixes_products();
  const Among among = of_pieces(seam) ? Among::context : Among::tensor;
  const bool cut = among == Among::tensor && model_.parts.fixes_sequences();
  const int pieces = cut ? model_.parts.pieces_here() : 1;
  Instruction i = seam_instruction(SumValues{tree}, among, block, segment, slice);
  i.moved_bytes = from.bytes();
  int result = buffer;
  if ((seam == Seam::sum || seam == Seam::sum_both) && !tree) {
    i.reads = i.writes = {{buffer, Role::values}};
  } else {
    Buffer to = from;
    to.name += " across";
    to.shape = behind(seam, from.shape, model_.parts);
    if (tree && rounds_sum(seam)) to.dtype = model_.compute;
    i.moved_bytes = std::max(from.bytes(), to.bytes());
    result = program_.add_buffer(to);
    if (seam == Seam::sum || seam == Seam::sum_both) {
      i.reads = {{buffer, Role::values}};
      i.writes = {{result, Role::whole}, {addend_staging(from.bytes(), among), Role::staging}};
    } else if (gathers(seam)) {
      i.what = GatherTokens{pieces};
      i.reads = {{buffer, Role::part}};
      i.writes = {{result, Role::whole}};
    } else if (scatters(seam)) {
      i.what = ScatterTokens{tree, pieces};
      i.reads = {{buffer, Role::whole}};
      i.writes = {{result, Role::part}};
      if (tree) i.writes.push_back({addend_staging(from.bytes(), among), Role::staging});
    } else {
      const bool to_heads = seam == Seam::to_heads;
      i.what = ExchangeHeads{to_heads};
      i.among = Among::context;
      i.reads = {{buffer, to_heads ? Role::tokens : Role::heads}};
      i.writes = {{result, to_heads ? Role::heads : Role::tokens}};
      for (const Role role : {Role::packed, Role::arrived}) {
        Buffer staging = to_heads ? to : from;  // with rows for every rank
        staging.name = fmt::format("{} {}", from.name, name_of(role));
        staging.kind = BufferKind::scratch;
        i.writes.push_back({program_.add_buffer(std::move(staging)), role});
      }
    }
  }
  program_.instructions.push_back(std::move(i));
  return result;
}

// Where every tensor or context rank's addend of this rank's share of so many bytes stands until it is added.
int Compiler::addend_staging(int64_t bytes, Among among) {
  const int ranks = among == Among::context ? model_.parts.context : model_.parts.tensor;
  const int64_t share = base::round_up(base::divide_up(bytes, ranks), device::kAlignment);
  return program_.add_buffer({.name = "addends",
                              .kind = BufferKind::scratch,
                              .dtype = device::DType::u8,
                              .shape = {(share + device::kAlignment) * ranks}});
}

void Compiler::seam_forward(Slice& s, size_t b, size_t g, const std::string& name, Seam seam) {
  if (seam == Seam::none) return;
  Edge& edge = s.flow().edges.at(name);
  edge.seam = seam;
  edge.given = program_.buffers[static_cast<size_t>(edge.buffer)];
  if (seam != Seam::spread)
    edge.buffer = cross(seam, edge.buffer, static_cast<int>(b), static_cast<int>(g), s.number);
}

// From the gradient of what came out of the seam to that of what went in.
int Compiler::seam_backward(Slice& s, const Edge& edge, int gradient) {
  const Seam seam = counterpart(edge.seam);
  if (!edge.gradient || seam == Seam::none || seam == Seam::spread) return gradient;
  return cross(seam, gradient, edge.block, edge.segment, s.number);
}

// --- between the parts of a segment ------------------------------------------------------------------

// What this rank has goes to the next one of the ring, and what the one before it has comes here; backward,
// the other way round.
int Compiler::shift(const Instruction& near, int buffer, bool forward) {
  Buffer to = program_.buffers[static_cast<size_t>(buffer)];
  Instruction i = seam_instruction(ShiftRing{forward}, Among::context, near.block, near.segment, near.slice);
  i.moved_bytes = to.bytes();
  const int result = program_.add_buffer(std::move(to));
  i.reads = {{buffer, forward ? Role::onward : Role::back}};
  i.writes = {{result, Role::arrived}};
  program_.instructions.push_back(std::move(i));
  return result;
}

namespace {

// Uses that `keep` says yes to.
template <class Keep>
std::vector<Use> chosen(const std::vector<Use>& uses, Keep keep) {
  std::vector<Use> some;
  for (const Use& use : uses) {
    if (keep(use.role)) some.push_back(use);
  }
  return some;
}

}  // namespace

void Compiler::ring_forward(Slice& s, size_t b, size_t g, Instruction whole) {
  const model::Ring& ring = *plans_[b][g].ring;
  const int block = static_cast<int>(b);
  std::vector<int> travels;
  std::vector<Use> across;
  for (const ValueSpec& spec : ring.travels)
    travels.push_back(value(spec, BufferKind::edge, block, s.number));
  for (const ValueSpec& spec : ring.across)
    across.push_back({value(spec, BufferKind::edge, block, s.number), Role::across, spec.name});
  for (int part = 0; part < ring.parts; ++part) {
    Instruction i = whole;
    i.get<RunSegment>()->part = part;
    i.flops = part == 0 ? 0 : whole.flops / (ring.parts - 1);
    i.moved_bytes = whole.moved_bytes / ring.parts;
    i.writes = chosen(whole.writes, [&](Role role) {
      return part == ring.parts - 1 || (part > 0 && role == Role::save) || role == Role::workspace;
    });
    std::vector<int> next;
    for (size_t k = 0; k < travels.size(); ++k) {
      const Use use{travels[k], Role::ring, ring.travels[k].name};
      (part == 0 ? i.writes : i.reads).push_back(use);
    }
    if (part > 0) i.writes.insert(i.writes.end(), across.begin(), across.end());
    if (part > 1) {
      i.reads.insert(i.reads.end(), across.begin(), across.end());
      for (const Use& use : chosen(whole.writes, [](Role role) { return role == Role::save; }))
        i.reads.push_back(use);
    }
    if (part > 0 && part + 1 < ring.parts) {  // on its way while this part computes
      for (const int buffer : travels) next.push_back(shift(i, buffer, true));
    }
    program_.instructions.push_back(std::move(i));
    if (!next.empty()) travels = std::move(next);
  }
  for (size_t k = 0; k < travels.size(); ++k) s.seen[b][g][as(Role::ring, ring.travels[k].name)] = travels[k];
}

void Compiler::ring_backward(Slice& s, size_t b, size_t g, Instruction whole) {
  const model::Ring& ring = *plans_[b][g].ring;
  const int block = static_cast<int>(b);
  std::vector<int> travels, gradients;
  std::vector<Use> across;
  for (const ValueSpec& spec : ring.travels) travels.push_back(s.seen[b][g].at(as(Role::ring, spec.name)));
  for (const ValueSpec& spec : ring.gradients)
    gradients.push_back(value(spec, BufferKind::dedge, block, s.number));
  for (const ValueSpec& spec : ring.back)
    across.push_back({value(spec, BufferKind::dedge, block, s.number), Role::across, spec.name});
  const auto is_gradient = [](Role role) { return role == Role::din || role == Role::left; };
  for (int part = ring.parts - 1; part >= 0; --part) {
    Instruction i = whole;
    const bool first = part == ring.parts - 1;
    i.get<RunSegment>()->part = part;
    i.flops = part == 0 ? 0 : whole.flops / (ring.parts - 1);
    i.moved_bytes = whole.moved_bytes / ring.parts;
    i.writes = chosen(whole.writes, [&](Role role) { return part == 0 || !is_gradient(role); });
    if (part > 0) {
      i.may_reuse.clear();
      for (size_t k = 0; k < travels.size(); ++k)
        i.reads.push_back({travels[k], Role::ring, ring.travels[k].name});
    }
    std::vector<int> before;
    if (part > 1) {
      for (const int buffer : travels) before.push_back(shift(i, buffer, false));
    }
    for (size_t k = 0; k < gradients.size(); ++k) {
      const Use use{gradients[k], Role::ringgrad, ring.gradients[k].name};
      if (!first) i.reads.push_back(use);
      if (part > 0) i.writes.push_back(use);
    }
    if (!first) i.reads.insert(i.reads.end(), across.begin(), across.end());
    if (part > 0) i.writes.insert(i.writes.end(), across.begin(), across.end());
    program_.instructions.push_back(i);
    if (part > 1) {
      for (int& buffer : gradients) buffer = shift(i, buffer, false);
      travels = std::move(before);
    }
  }
}

// Part 2 k of the list is the first of round k, part 2 k + 1 the second.
void Compiler::loss_in_rounds(size_t b, size_t g, const Instruction& whole) {
  const std::vector<ValueSpec>& rounds = plans_[b][g].rounds;
  const auto is_scratch = [](Role role) { return role == Role::scratch || role == Role::workspace; };
  const RunSegment& pass = *whole.get<RunSegment>();
  for (size_t k = 0; k < rounds.size(); ++k) {
    const int given = value(rounds[k], BufferKind::edge, whole.block, whole.slice);
    Instruction first = whole;
    first.get<RunSegment>()->part = static_cast<int>(2 * k);
    first.flops = whole.flops / static_cast<double>(3 * rounds.size());  // one product of three
    first.moved_bytes = whole.moved_bytes / static_cast<int64_t>(2 * rounds.size());
    first.writes = chosen(whole.writes, is_scratch);
    first.writes.push_back({given, Role::out, rounds[k].name});
    Instruction second = whole;
    second.get<RunSegment>()->part = static_cast<int>(2 * k) + 1;
    second.flops = whole.flops / static_cast<double>(rounds.size()) - first.flops;
    second.moved_bytes = first.moved_bytes;
    second.get<RunSegment>()->accumulate = pass.accumulate || k > 0;
    second.get<RunSegment>()->last_part = k + 1 == rounds.size();
    first.get<RunSegment>()->last_part = false;
    program_.instructions.push_back(std::move(first));
    int taken = given;
    if (model_.parts.tensor > 1) {
      taken = cross(Seam::gather_tokens, given, whole.block, whole.segment, whole.slice);
      program_.instructions.back().get<GatherTokens>()->pieces = 1;  // a round is of one piece
    }
    second.reads.push_back({taken, Role::in, rounds[k].name});
    for (const Use& use : chosen(whole.writes, is_scratch)) {
      if (use.role != Role::workspace) second.reads.push_back(use);
    }
    program_.instructions.push_back(std::move(second));
  }
}

// --- what flows into each block, behind the seams -------------------------------------------------

void Compiler::find_flows() {
  std::map<std::string, ValueSpec> edges;
  for (const auto& block : plans_) {
    flows_.push_back(edges);
    for (const model::SegmentPlan& plan : block) {
      for (const std::string& name : plan.inputs) edges.erase(name);
      for (const ValueSpec& spec : plan.outputs) edges[spec.name] = spec;
      for (const auto& [name, seam] : plan.seams) {
        edges[name].shape = behind(seam, edges[name].shape, model_.parts);
        if (rounds_sum(seam) && model_.parts.fixes_products()) edges[name].dtype = model_.compute;
      }
    }
  }
}

}  // namespace lockstep::program
