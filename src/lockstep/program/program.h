// The step program: a training step as a list of instructions over named buffers.
//
// It is made by compile() (program/compile.h), rewritten by layouts and memory tricks, proved by check(),
// placed in memory by place(), run by the executor (run/executor.h) and printed by `explain program`.
// There is no control flow: the list is the step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/device/tensor.h"
#include "lockstep/model/block.h"

namespace lockstep::program {

// The closed set of operations. A new feature is a new order or a rewrite, not a new operation.
enum class Op : uint8_t {
  load, forward, loss, backward_input, backward_weight, recompute,
  gather, release, reduce, sum, exchange, send, recv,
  norm, update, copy, cast, snapshot,
};
const char* name_of(Op op);

// Lanes run beside each other (CUDA streams, threads); instructions of one lane run in list order.
enum class Lane : uint8_t { compute, gather, reduce, pipe, host };
const char* name_of(Lane lane);

enum class BufferKind : uint8_t {
  master,     // fp32 parameters
  compute,    // their rounded copies
  gradient,   // fp32 sums, one for each level of the strand stack
  optimizer,  // moments
  state,      // step scalars, chunk tables, constant tables
  batch,      // tokens and labels of a slice
  edge,       // what flows forward between segments
  saved,      // what forward leaves for backward
  dedge,      // gradients that flow backward
  scratch,    // lives inside one instruction
  workspace,  // kernels' own scratch
};
const char* name_of(BufferKind kind);

struct Buffer {
  std::string name;  // "b3 s0 residual"
  BufferKind kind = BufferKind::edge;
  device::DType dtype = device::DType::f32;
  device::Shape shape;
  int block = -1, slice = -1;
  bool persistent = false;  // lives across steps
  bool external = false;    // counted, but LibTorch holds it (AutogradBlock)
  int64_t offset = -1;      // in its arena, once placed; buffers that share memory share the offset
  int64_t bytes() const { return shape.numel() * device::size_of(dtype); }
};

// One buffer under the name by which the instruction knows it: "in.hidden", "weight", "gradient".
struct Use {
  int buffer = -1;
  std::string role;
};

struct Instruction {
  Op op = Op::forward;
  Lane lane = Lane::compute;
  int block = -1, segment = -1, slice = -1;
  int level = 0;             // gradient level that it adds to (backward_weight, loss, sum, reduce)
  bool accumulate = false;   // add to what is there; false: the first of its strand writes
  bool keeps_tape = true;    // forward: false when its values are recomputed later
  bool predicated = false;   // runs only if every gradient was finite (update)
  std::vector<Use> reads, writes;
  std::vector<int> waits;    // indices of instructions on other lanes
  // {written, read}: may share memory when the read is the last (plans' may_reuse).
  std::vector<std::pair<int, int>> may_reuse;
  double flops = 0;
  int64_t moved_bytes = 0;   // by everything that is not a matrix product
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  bool training = true;
  int64_t slices = 1, strands = 1;
  int64_t samples_per_slice = 1, seq_len = 1;
  int64_t workspace_bytes = 0;
  int add_buffer(Buffer buffer);
};

// "forward b3.attention s0".
std::string title(const Program& program, const model::Model& model, const Instruction& instruction);

}  // namespace lockstep::program
