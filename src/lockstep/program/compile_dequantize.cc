// Weights that are kept in 4 or 8 bits (tune.base): a rewrite of the list. Before a segment's passes stands a
// `cast` that writes its quantized weights in the type of products, into memory that lives until the last of
// these passes; what follows each other of one segment and slice shares it. Stands before the rewrite for
// ZeRO, which then gathers blocks of codes instead of weights.
#include <fmt/format.h>

#include "lockstep/program/compile.h"

namespace lockstep::program {

namespace {

bool quantized(const Program& program, const Use& use) {
  const Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
  return use.role == Role::weight && buffer.kind == BufferKind::quantized && buffer.persistent;
}

class Rewriter {
 public:
  Rewriter(Program& program, const model::Model& model) : program_(program), model_(model) {
    for (const model::Block& block : model.blocks) layouts_.push_back(model::layout_of(block));
  }

  void run() {
    std::vector<Instruction> list;
    for (Instruction& i : program_.instructions) {
      if (i.is<RunSegment>()) redirect(i, list);
      list.push_back(std::move(i));
    }
    program_.instructions = std::move(list);
  }

 private:
  struct Open {  // what was dequantized last
    int block = -1, segment = -1, slice = -1, values = -1;
  };

  void redirect(Instruction& i, std::vector<Instruction>& list) {
    if (i.block != open_.block || i.segment != open_.segment || i.slice != open_.slice)
      open_ = {i.block, i.segment, i.slice, -1};
    for (Use& use : i.reads) {
      if (!quantized(program_, use)) continue;
      if (open_.values < 0) list.push_back(dequantize(i, use.buffer));
      use.buffer = open_.values;
    }
  }

  Instruction dequantize(const Instruction& before, int from) {
    const auto block = static_cast<size_t>(before.block);
    const std::string segment = model_.blocks[block].segments()[static_cast<size_t>(before.segment)]->name();
    const int64_t count = model::dequantized_count(layouts_[block], segment);
    open_.values =
        program_.add_buffer({.name = fmt::format("b{} {} dequantized {}", block, segment, count_++),
                             .kind = BufferKind::quantized,
                             .dtype = model_.compute,
                             .shape = {count},
                             .block = before.block});
    Instruction i{
        .what = DequantizeWeights{}, .block = before.block, .segment = before.segment, .slice = before.slice};
    i.reads = {{from, Role::weight}};
    i.writes = {{open_.values, Role::values}};
    i.moved_bytes = program_.buffers[static_cast<size_t>(open_.values)].bytes() +
                    kernels::quantized_bytes(layouts_[block].format, count);
    return i;
  }

  Program& program_;
  const model::Model& model_;
  std::vector<model::BlockLayout> layouts_;
  Open open_;
  int count_ = 0;
};

}  // namespace

void rewrite_dequantize(Program& program, const model::Model& model) {
  for (const BlockBuffers& keep : program.blocks) {
    if (keep.quantized < 0) continue;
    Rewriter(program, model).run();
    return;
  }
}

}  // namespace lockstep::program
