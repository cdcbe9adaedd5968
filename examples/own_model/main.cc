// A convolutional net of one's own, trained by Lockstep on pictures of one's own.
//
//     own_model run.steps=400 --nproc 2        # run it again: it goes on where it was stopped or killed
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <cstdio>
#include <vector>

#include "lockstep/lockstep.h"
#include "lockstep/model/modules/autograd_torch.h"
#include "shapes.h"

namespace ls = lockstep;
namespace nn = torch::nn;

struct Net : nn::Module {
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
  nn::Linear out{nullptr};
  Net() {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 8, 3).padding(1)));
    norm1 = register_module("norm1", nn::BatchNorm2d(8));
    conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(8, 16, 3).padding(1)));
    norm2 = register_module("norm2", nn::BatchNorm2d(16));
    out = register_module("out", nn::Linear(16 * 3 * 3, Shapes::kClasses));
  }
  at::Tensor forward(const at::Tensor& pictures) {  // [samples, 1, 12, 12] to [samples, classes]
    at::Tensor x = at::max_pool2d(at::relu(norm1(conv1(pictures))), 2);
    x = at::max_pool2d(at::relu(norm2(conv2(x))), 2);
    return out(x.flatten(1));
  }
};

struct Printer : ls::TrainObserver {
  void stepped(const ls::run::StepReport& r) override {
    if (r.step % 20 == 0)
      std::printf("step %3ld  loss %.4f  %6.0f samples/s\n", r.step, r.loss, r.tokens_per_s);
  }
};

ls::model::Model model_of(const std::shared_ptr<Net>& net, ls::device::DType type) {
  ls::model::Model model{.family = "own", .compute = type, .predicts_tokens = false};
  model.blocks.push_back(
      ls::model::autograd_block({.name = "net",
                                 .module = net,
                                 .forward = [net](const at::Tensor& x) { return net->forward(x); },
                                 .in = {1, Shapes::kSide, Shapes::kSide},
                                 .out = {Shapes::kClasses},
                                 .type = type,
                                 .reads_batch = true}));
  model.blocks.push_back(ls::model::block_of("loss", ls::model::make_classify({type, Shapes::kClasses})));
  return model;
}

double accuracy(Net& net, const Shapes& shapes) {
  net.eval();
  const auto split = ls::data::Split::eval;
  int64_t right = 0;
  for (int64_t index = 0; index < shapes.samples(split); ++index) {
    std::vector<int32_t> picture(Shapes::kSide * Shapes::kSide), label(1);
    shapes.read(split, index, picture, label);
    const at::Tensor x = at::from_blob(picture.data(), {1, 1, Shapes::kSide, Shapes::kSide}, at::kFloat);
    right += net.forward(x).argmax().item<int64_t>() == label[0];
  }
  return static_cast<double>(right) / static_cast<double>(shapes.samples(split));
}

int main(int count, char** words) {
  return ls::run_main([&] {
    ls::CommandLine line = ls::read_command_line(
        {words + 1, words + count},
        {"run.name=shapes", "run.device=cpu", "run.steps=200", "run.threads=1", "batch.global=64",
         "batch.slices=4", "batch.strands=2", "optim.lr=0.01", "log.eval_every=0"});
    std::shared_ptr<Net> net;  // made when the device is known
    Printer printer;
    line.options.observer = &printer;
    line.options.data = std::make_shared<Shapes>(1);
    line.options.model = [&](const ls::recipe::Recipe&, ls::device::DType type) {
      at::manual_seed(1);
      if (!net) net = std::make_shared<Net>();
      return model_of(net, type);
    };
    const ls::TrainResult result = ls::train(ls::recipe::read_recipe(line.recipe), line.options);
    if (!result.first) return result.exit_code;  // a launcher, or another rank
    std::printf("params_hash %s\n", result.params_hash.c_str());
    if (result.finished && result.ended == ls::TrainResult::Ended::trained)
      std::printf("%.1f %% of new pictures are recognised\n", 100 * accuracy(*net, Shapes(1)));
    return result.exit_code;
  });
}
