// AutogradBlock: any torch::nn::Module as a block, differentiated by LibTorch.
//
// Forward keeps the graph of one slice, backward_input asks torch::autograd::grad for it, backward_weight
// adds the parameters' gradients to Lockstep's. Dropout draws from a generator that is reseeded from (seed,
// step, slice, block), so recomputation and every order of slices give the same bits. Memory is measured by
// one trial before step 0. Statistics (BatchNorm) start every slice from the step's beginning and are
// averaged over slices at its end.
//
//     auto net = std::make_shared<MyNet>();
//     model.blocks.push_back(autograd_block({.name = "net", .module = net,
//         .forward = [net](const at::Tensor& x) { return net->forward(x); },
//         .in = {1, 12, 12}, .out = {4}, .type = compute, .reads_batch = true}));
//
// While a session runs, the module's parameters are views of the session's memory. When the session ends, the
// module keeps what was trained, where it was before (on the CPU as a rule). On a GPU, LibTorch's CUDA half
// is loaded when the first module asks for it; what a program does with LibTorch before that must not ask for
// GPUs (at::manual_seed does): make modules in the function that train() is given (lockstep/train.h).
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>

#include "lockstep/model/block.h"

namespace lockstep::model {

struct AutogradOptions {
  std::string name;  // of the block, and before its parameters' names: "net.conv.weight"
  std::shared_ptr<torch::nn::Module> module;  // parameters and buffers; their values now are the first ones
  std::function<at::Tensor(const at::Tensor&)> forward;  // [samples, in...] to [samples, out...]
  Shape in, out;                                         // of one sample
  DType type = DType::f32;                               // of the weights and of what flows between blocks
  bool reads_batch = false;  // first block: reads the batch's inputs instead of "hidden"
  bool tokens = false;       // the batch's words are token numbers (handed over as int64), not floats
  // The same bits each time. On the CPU the module computes on one thread, because LibTorch's sums depend on
  // the number of threads; on a GPU with LibTorch's deterministic algorithms, and an operation that has none
  // is refused. False: on all of run.threads, and the bits are those of that number; on a GPU with whatever
  // LibTorch finds fastest, whose bits may differ from run to run.
  bool exact = true;
};

// Takes "hidden" (or the batch), gives "hidden". ConfigError 172 when the module cannot be a block.
Block autograd_block(AutogradOptions options);

}  // namespace lockstep::model
