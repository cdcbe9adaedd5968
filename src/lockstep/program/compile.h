// compile(): model and layout in, step program out. A pure function.
//
// The list is written for this rank's slices, as if it were alone and without tricks; then each rewrite is
// applied, in the one order that compile() shows: recomputation, shards of weights, reductions, reuse of
// memory. Slices and strands follow the numeric contract: within a strand gradients are folded in slice
// order; strands are summed over one fixed binary tree, kept as a stack of at most log2(strands) + 1 gradient
// buffers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/model/block.h"
#include "lockstep/program/program.h"

namespace lockstep::program {

// Which forward work is done again in the backward pass instead of being kept.
struct Recompute {
  int every = 0;                      // groups of this many blocks keep only their input; 1 is "full"
  std::vector<std::string> segments;  // or: only segments of these names
  bool cheap = false;                 // or: values that backward_input makes again on its way
  bool none() const { return every == 0 && segments.empty() && !cheap; }
};
// "none", "cheap", "full", "every-3", "attention,up". ConfigError for names that no block of the model has.
Recompute parse_recompute(const std::string& text, const model::Model& model);

// What one of the run's update rules keeps, as far as memory is concerned: Treatment::rule is its number.
struct StateRule {
  struct State {
    std::string name;  // "m"
    device::DType dtype = device::DType::f32;
    device::Shape shape;
  };
  std::function<std::vector<State>(const device::Shape& parameter)> state;
  std::function<int64_t(const device::Shape& parameter)> scratch = {};  // of whole parameters: bytes
};
StateRule element_rule(int tensors, device::DType type);  // that keeps so many values for each element

struct Layout {
  model::SliceShape slice;
  int64_t slices = 1, strands = 1;
  Recompute recompute;
  DataRanks ranks;  // this rank among those that share the batch
  Stages stages;    // and among those that share the blocks
  std::vector<StateRule> rules = {element_rule(2, device::DType::f32)};  // as AdamW
  bool offload = false;                                                  // moments in the host's memory
  const kernels::Kernels* kernels = nullptr;  // of the device it will run on: how much scratch they want
  bool training = true;                       // false: load, forward, loss only
};

Program compile(const model::Model& model, const Layout& layout);

// The rewrites, in the order in which compile() applies them.
void rewrite_recompute(Program& program, const model::Model& model, const Recompute& recompute);
void rewrite_dequantize(Program& program, const model::Model& model);  // weights that are kept quantized
void rewrite_gather(Program& program);                                 // ZeRO: shards of weights and moments
void rewrite_reduce(Program& program, const model::Model& model);      // data parallelism
void rewrite_reuse(Program& program);

}  // namespace lockstep::program
