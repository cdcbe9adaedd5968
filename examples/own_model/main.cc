// A convolutional net of one's own, trained by Lockstep on pictures of one's own.
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

struct Printer : ls::run::Observer {
  void stepped(const ls::run::StepReport& r) override {
    if (r.step % 20 == 0)
      std::printf("step %3ld  loss %.4f  %6.0f samples/s\n", r.step, r.loss, r.tokens_per_s);
  }
};

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

int main(int count, char** words) try {
  std::vector<std::string> recipe{"run.device=cpu",  "run.steps=200", "batch.global=64",  "batch.slices=4",
                                  "batch.strands=2", "optim.lr=0.01", "log.eval_every=0", "run.threads=1"};
  recipe.insert(recipe.end(), words + 1, words + count);  // ./own_model run.steps=400

  const auto world = ls::launch::join();  // one rank, unless a launcher started several
  at::manual_seed(1);
  const auto net = std::make_shared<Net>();
  ls::run::Own own;
  own.dataset = std::make_unique<Shapes>(1);
  own.build_model = [&](const ls::recipe::Recipe&, ls::device::DType type) {
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
  };
  ls::run::Summary summary;
  {
    ls::run::Ranks ranks(*world);
    ls::run::Session session(ls::run::make_plan(ls::recipe::read_recipe({.overrides = recipe}), std::move(own),
                                                ls::run::for_this(ranks)),
                             &ranks);
    Printer printer;
    ls::run::Observer nobody;
    summary = ls::run::train(session, {}, world->first() ? printer : nobody);
  }  // the session ends, and the module keeps what was trained
  if (!world->first()) return 0;
  std::printf("params_hash %s\n%.1f %% of new pictures are recognised\n", summary.params_hash.c_str(),
              100 * accuracy(*net, Shapes(1)));
} catch (const ls::base::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return error.exit_code();
}
