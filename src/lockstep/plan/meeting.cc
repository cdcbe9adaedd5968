#include "lockstep/plan/meeting.h"

#include <fmt/format.h>

#include <set>

#include "lockstep/plan/world.h"

namespace lockstep::plan {

using program::Among;
using program::Instruction;
using program::Program;

namespace {

// Blocks whose gradients go into a reduction of several.
std::set<int> blocks_of(const Program& program, const Instruction& i) {
  std::set<int> blocks;
  for (const auto* uses : {&i.reads, &i.writes}) {
    for (const program::Use& use : *uses) {
      const program::Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
      if (buffer.kind == program::BufferKind::gradient) blocks.insert(buffer.block);
    }
  }
  return blocks;
}

int64_t bytes_of(const Program& program, const std::vector<program::Use>& uses) {
  int64_t total = 0;
  for (const program::Use& use : uses) {
    const program::Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
    if (!buffer.sharded && buffer.kind != program::BufferKind::scratch) total += buffer.bytes();
  }
  return total;
}

std::string differing_message(const Instruction& x, const Instruction& y) {
  if (x.slice != y.slice)
    return fmt::format("one belongs to slice {}, the other to slice {}", x.slice, y.slice);
  const bool x_sends = sends(x);
  const int64_t sent = x_sends ? x.moved_bytes : y.moved_bytes,
                taken = x_sends ? y.moved_bytes : x.moved_bytes;
  if (sent != taken) return fmt::format("{} bytes are sent, but {} are received", sent, taken);
  if ((x.among == Among::next) == (y.among == Among::next)) return "one is forward, the other backward";
  return "";
}

}  // namespace

std::string call_name(int rank, size_t index, const Instruction& i) {
  std::string text = fmt::format("rank {} #{} {}", rank, index, program::name_of(program::verb_of(i.what)));
  if (i.block >= 0) text += fmt::format(" b{}", i.block);
  if (i.segment >= 0) text += fmt::format(".{}", i.segment);
  if (i.slice >= 0) text += fmt::format(" s{}", i.slice);
  text += program::stage_of(i.what);
  if (i.among != Among::none) text += fmt::format(" with {}", program::name_of(i.among));
  return text;
}

std::string differs(const Program& a, const Instruction& x, const Program& b, const Instruction& y) {
  if (is_message(x)) return differing_message(x, y);
  if (x.what.index() != y.what.index()) {
    return fmt::format("one is {}, the other {}", program::name_of(program::verb_of(x.what)),
                       program::name_of(program::verb_of(y.what)));
  }
  if (x.block != y.block) return fmt::format("one belongs to b{}, the other to b{}", x.block, y.block);
  if (x.segment != y.segment)
    return fmt::format("one belongs to segment {}, the other to {}", x.segment, y.segment);
  const std::string here = program::stage_of(x.what), there = program::stage_of(y.what);
  if (here != there) return fmt::format("one is of{}, the other of{}", here, there);
  if (blocks_of(a, x) != blocks_of(b, y)) return "they carry gradients of different blocks";
  const bool same_slice = x.among == Among::tensor || x.among == Among::context;
  if (same_slice && x.slice != y.slice)
    return fmt::format("one belongs to slice {}, the other to slice {}", x.slice, y.slice);
  const bool whole = same_slice || x.is<program::GatherWeights, program::GatherSums>();
  if (whole && bytes_of(a, x.writes) != bytes_of(b, y.writes)) {
    return fmt::format("one gets {} bytes, the other {}", bytes_of(a, x.writes), bytes_of(b, y.writes));
  }
  return "";
}

}  // namespace lockstep::plan
