// A small network of torch::nn::Module and noisy points that it learns, in whole sessions. For tests.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/audit.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/data/loader.h"
#include "lockstep/lockstep.h"
#include "lockstep/model/modules/autograd_torch.h"
#include "lockstep/model/modules/device_torch.h"
#include "lockstep/run/folder/run_folder.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {

namespace nn = torch::nn;
inline constexpr int64_t kWidth = 8, kHidden = 16, kClasses = 3, kGlobal = 32;

// Noisy points around one centre for each class.
class Points final : public data::Dataset {
 public:
  explicit Points(int64_t broken = -1) : broken_(broken) {}
  int64_t vocab() const override { return kClasses; }
  int64_t samples(data::Split split) const override { return split == data::Split::train ? 256 : 64; }
  int64_t inputs_per_sample(int64_t) const override { return kWidth; }
  int64_t labels_per_sample(int64_t) const override { return 1; }
  void read(data::Split split, int64_t index, std::span<int32_t> inputs,
            std::span<int32_t> labels) const override {
    const int64_t key = index + (split == data::Split::eval ? 1000 : 0);
    labels[0] = static_cast<int32_t>(key % kClasses);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const double noise = std::sin(static_cast<double>(key * 31 + static_cast<int64_t>(i) * 17)) * 0.5;
      const double centre = std::cos(static_cast<double>(labels[0]) * 2.0 + static_cast<double>(i));
      const bool bad = split == data::Split::train && index == broken_;
      inputs[i] = std::bit_cast<int32_t>(bad ? std::numeric_limits<float>::quiet_NaN()
                                             : static_cast<float>(centre + noise));
    }
  }
  std::string describe() const override { return "points"; }
  uint64_t content_hash() const override { return 1; }

 private:
  int64_t broken_;
};

// On a GPU with LOCKSTEP_TEST_DEVICE=cuda, where a whole LibTorch is installed.
class Autograd : public testing::Test {
 protected:
  void SetUp() override {
    if (test_device() == "cpu") return;
    try {
      model::load_torch_cuda();  // before anything seeds LibTorch
    } catch (const base::ConfigError& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

// Two blocks, so that gradients also flow from one module to the other.
struct Net {
  nn::Sequential first, second;
  explicit Net(bool with_dropout = true) {
    at::manual_seed(7);
    first = nn::Sequential(nn::Linear(kWidth, kHidden), nn::BatchNorm1d(kHidden), nn::ReLU());
    second = nn::Sequential(nn::Linear(kHidden, kHidden), nn::Dropout(with_dropout ? 0.25 : 0.0), nn::Tanh(),
                            nn::Linear(kHidden, kClasses));
  }
  at::Tensor operator()(const at::Tensor& x) const {
    return nn::Sequential(second)->forward(nn::Sequential(first)->forward(x));
  }
};

inline model::Model build(const Net& net, device::DType type, int64_t out = kClasses) {
  model::Model model{.family = "own", .compute = type, .predicts_tokens = false};
  const auto block = [&](const char* name, nn::Sequential module, model::Shape in, model::Shape gives,
                         bool first) {
    model.blocks.push_back(model::autograd_block(
        {.name = name,
         .module = module.ptr(),
         .forward = [module](const at::Tensor& x) mutable { return module->forward(x); },
         .in = in,
         .out = gives,
         .type = type,
         .reads_batch = first}));
  };
  block("first", net.first, {kWidth}, {kHidden}, true);
  block("second", net.second, {kHidden}, {out}, false);
  model.blocks.push_back(model::block_of("loss", model::make_classify({type, kClasses})));
  return model;
}

inline Plan plan_for(const Net& net, std::vector<std::string> overrides, int64_t broken = -1,
                     int64_t out = kClasses, PlanOptions options = {}) {
  std::vector<std::string> all{"precision.tf32=false", "run.device=" + test_device(),
                               "run.steps=6",          "batch.global=32",
                               "batch.slices=4",       "batch.strands=2",
                               "optim.lr=0.01",        "optim.warmup=0",
                               "log.eval_every=0",     "run.threads=1"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  Own own;
  own.dataset = std::make_unique<Points>(broken);
  own.build_model = [&](const recipe::Recipe&, device::DType type) { return build(net, type, out); };
  return make_plan(recipe::read_recipe({.overrides = all}), std::move(own), options);
}

inline data::Batch first_batch(const Plan& plan) {
  return data::read_batch(*plan.dataset,
                          {.seed = 1, .global = kGlobal, .slices = plan.layout.slices, .own_slices = {}}, 0);
}

inline std::vector<float> read_floats(const Session& session, const device::Tensor& from) {
  std::vector<float> values(static_cast<size_t>(from.numel()));
  session.parameters->read(from, values.data());
  return values;
}

inline device::Tensor statistic(const Session& session, const std::string& name) {
  for (const Parameters::Named& one : session.parameters->statistics()) {
    if (one.name == name) return one.master.values;
  }
  ADD_FAILURE() << "no statistic " << name;
  return {};
}

inline int number_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const base::Error& error) {
    return error.number();
  }
  return 0;
}

struct Outcome {
  std::string hash = {};
  std::vector<float> mean = {};
  int64_t batches = 0;
};

// No other rank is asked.
inline Outcome statistics_of(const Session& session) {
  Outcome outcome{.mean = read_floats(session, statistic(session, "first.1.running_mean"))};
  session.parameters->read(statistic(session, "first.1.num_batches_tracked"), &outcome.batches);
  return outcome;
}

inline Outcome outcome_of(const Session& session) {
  Outcome outcome = statistics_of(session);
  outcome.hash = session.parameters->hash();
  return outcome;
}

inline void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.hash, b.hash);
  EXPECT_EQ(a.mean, b.mean);
  EXPECT_EQ(a.batches, b.batches);
}

inline Outcome train_with(std::vector<std::string> overrides) {
  Net net;
  Session session(plan_for(net, std::move(overrides)));
  Observer nobody;
  train(session, {}, nobody);
  return outcome_of(session);
}

}  // namespace lockstep::run
