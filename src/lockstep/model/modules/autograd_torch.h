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
  bool bare_names = false;    // parameters are named "conv.weight", without the block's name before it
  std::string identity = {};  // what the bits rest on beyond the recipe, for the numerics record
};

// Takes "hidden" (or the batch), gives "hidden". ConfigError 172 when the module cannot be a block.
Block autograd_block(AutogradOptions options);

// A loss of your own, differentiated by LibTorch: the last block.
//
//     autograd_loss({.loss = [](const at::Tensor& outputs, const at::Tensor& labels) {     // two heads
//                      const auto heads = outputs.split_with_sizes({4, 10}, 1);
//                      return at::stack({at::cross_entropy_loss(heads[0], labels.select(1, 0), {}, 0, -1),
//                                        at::cross_entropy_loss(heads[1], labels.select(1, 1), {}, 0, -1)},
//                                        1);
//                    },
//                    .in = {14}, .labels = {2}, .type = compute})
//
// It gives one value for each label or one for each sample, not their mean: Lockstep adds them up in a fixed
// order and divides by the number of labels in the batch that count, so that slices and ranks do not matter.
// A label of -1 does not count, and what is given for it is left out; a sample whose labels are all -1 does
// not count either (evaluation fills its last batch with such). Both must not make the function fail.
struct AutogradLossOptions {
  std::string name = "loss";  // of the block
  std::function<at::Tensor(const at::Tensor& outputs, const at::Tensor& labels)> loss;
  Shape in;                 // of one sample: what the block before gives
  Shape labels = {};        // of one sample; empty: one label, and `labels` is [samples]
  DType type = DType::f32;  // of what the block before gives
  bool targets = false;     // labels are floats to be met (regression), not the numbers of classes
  bool exact = true;        // as in AutogradOptions
};
Block autograd_loss(AutogradLossOptions options);  // ConfigError 172

}  // namespace lockstep::model
