// Between pipeline stages: what the next one needs goes out, what this one needs comes in.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/program/compiler.h"

namespace lockstep::program {

using model::ValueSpec;

// The edge whose gradient is this one's too, among those that flow into `block`; empty when it has its own.
std::string Compiler::shares_gradient(int block, const std::string& name) const {
  for (size_t b = static_cast<size_t>(block); b < plans_.size(); ++b) {
    for (const model::SegmentPlan& plan : plans_[b]) {
      const bool reads = std::count(plan.inputs.begin(), plan.inputs.end(), name) > 0 ||
                         std::count(plan.passes.begin(), plan.passes.end(), name) > 0;
      if (!reads) continue;
      for (const auto& [role, other] : plan.same) {
        const std::string with(name_in(other));
        const bool flows = is(other, Role::din) && wanted(block, with);
        if (role == as(Role::din, name) && flows) return with;
      }
      return "";
    }
  }
  return "";
}

// The edge that `name` is added to by its first reader, who needs nothing else of both: then their sum is
// sent, rounded as the reader rounds it, and zeros stand for `name` there. Empty: it is sent as it is.
std::string Compiler::adds_to(int block, const std::string& name) const {
  const std::string with = layout_.training ? shares_gradient(block, name) : "";
  if (with.empty()) return "";
  const std::map<std::string, ValueSpec>& edges = flows_[static_cast<size_t>(block)];
  const ValueSpec &one = edges.at(name), &other = edges.at(with);
  return one.dtype == other.dtype && one.shape == other.shape ? with : "";
}

int Compiler::add_edges(int a, int b, const Instruction& send) {
  Buffer sum = program_.buffers[static_cast<size_t>(a)];
  sum.name += " sent";
  Instruction i{.what = AddEdges{}, .block = send.block, .slice = send.slice};
  i.moved_bytes = 3 * sum.bytes();
  i.reads = {{a, Role::values}, {b, Role::values}};
  i.writes = {{program_.add_buffer(std::move(sum)), Role::values}};
  const int result = i.writes[0].buffer;
  program_.instructions.push_back(std::move(i));
  return result;
}

int Compiler::zeros_like(const ValueSpec& spec) {
  auto [it, fresh] = zeros_.try_emplace(spec.name, -1);
  if (fresh) {
    it->second = persistent("zeros for " + spec.name, BufferKind::state, spec.dtype, spec.shape, -1);
    program_.instructions[0].writes.push_back({it->second, Role::zeros});  // BeginStep
  }
  return it->second;
}

// What a turn needs from another stage.
void Compiler::receive(const Turn& turn) {
  Slice& s = slices_[static_cast<size_t>(turn.slice)];
  if (turn.what == Turn::What::forward) {
    if (!layout_.stages.first_piece(turn.chunk)) receive_edges(s, turn.chunk);
  } else if (turn.what != Turn::What::backward_weight) {
    if (!layout_.stages.last_piece(turn.chunk)) receive_gradients(s, turn.chunk);
  }
}

void Compiler::send_edges(Slice& s, int chunk) {
  const int block = piece(chunk).end;
  Instruction i{
      .what = SendValues{}, .lane = Lane::send, .block = block - 1, .slice = s.number, .among = Among::next};
  const std::map<std::string, Edge>& edges = s.flow().edges;
  for (const auto& [name, edge] : edges) {
    if (!adds_to(block, name).empty()) continue;
    int buffer = edge.buffer;
    for (const auto& [other, addend] : edges) {
      if (adds_to(block, other) == name) buffer = add_edges(buffer, addend.buffer, i);
    }
    i.reads.push_back({buffer, Role::field, name});
    i.moved_bytes += program_.buffers[static_cast<size_t>(buffer)].bytes();
  }
  program_.instructions.push_back(std::move(i));
  s.flow().sent = std::exchange(s.flow().edges, {});
}

void Compiler::receive_edges(Slice& s, int chunk) {
  const int block = piece(chunk).begin;
  Instruction i{
      .what = RecvValues{}, .lane = Lane::recv, .block = block, .slice = s.number, .among = Among::previous};
  for (const auto& [name, spec] : flows_[static_cast<size_t>(block)]) {
    const bool came = adds_to(block, name).empty();
    const int buffer = came ? value(spec, BufferKind::edge, block, s.number) : zeros_like(spec);
    s.flows[static_cast<size_t>(chunk)].edges[name] = {.buffer = buffer, .gradient = spec.gradient};
    if (!came) continue;
    i.writes.push_back({buffer, Role::field, name});
    i.moved_bytes += program_.buffers[static_cast<size_t>(buffer)].bytes();
  }
  program_.instructions.push_back(std::move(i));
}

// Whether an edge flows into `block` whose gradient somebody before it reads.
bool Compiler::wanted(int block, const std::string& name) const {
  const auto found = wanted_[static_cast<size_t>(block)].find(name);
  return found != wanted_[static_cast<size_t>(block)].end() && found->second;
}

void Compiler::send_gradients(Slice& s, int chunk) {
  const int block = piece(chunk).begin;
  Instruction i{
      .what = SendValues{}, .lane = Lane::send, .block = block, .slice = s.number, .among = Among::previous};
  for (const auto& [name, buffer] : s.flow().dedges) {
    if (!shares_gradient(block, name).empty()) continue;
    i.reads.push_back({buffer, Role::field, "d" + name});
    i.moved_bytes += program_.buffers[static_cast<size_t>(buffer)].bytes();
  }
  s.flow().dedges.clear();
  if (!i.reads.empty()) program_.instructions.push_back(std::move(i));
}

void Compiler::receive_gradients(Slice& s, int chunk) {
  const int block = piece(chunk).end;
  Slice::Flow& flow = s.flows[static_cast<size_t>(chunk)];
  Instruction i{
      .what = RecvValues{}, .lane = Lane::recv, .block = block - 1, .slice = s.number, .among = Among::next};
  for (const auto& [name, spec] : flows_[static_cast<size_t>(block)]) {
    if (!wanted(block, name) || !shares_gradient(block, name).empty()) continue;
    const int buffer = value({"d" + name, spec.dtype, spec.shape}, BufferKind::dedge, block - 1, s.number);
    flow.dedges[name] = buffer;
    i.writes.push_back({buffer, Role::field, "d" + name});
    i.moved_bytes += program_.buffers[static_cast<size_t>(buffer)].bytes();
  }
  if (!i.writes.empty()) program_.instructions.push_back(std::move(i));
  for (const auto& [name, spec] : flows_[static_cast<size_t>(block)]) {
    if (const std::string with = shares_gradient(block, name); wanted(block, name) && !with.empty())
      flow.dedges[name] = flow.dedges.at(with);
  }
}

// What came is the gradient of what was sent, behind the seams. Not while it is only being asked for: nothing
// of an earlier turn may stand behind it on the seams' lane.
void Compiler::cross_back(Slice& s) {
  for (auto& [name, buffer] : s.flow().dedges) buffer = seam_backward(s, s.flow().sent.at(name), buffer);
  s.flow().sent.clear();
}

}  // namespace lockstep::program
