// Models of torch::nn::Module, trained through a whole session.
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
namespace {

namespace nn = torch::nn;
constexpr int64_t kWidth = 8, kHidden = 16, kClasses = 3, kGlobal = 32;

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

model::Model build(const Net& net, device::DType type, int64_t out = kClasses) {
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

Plan plan_for(const Net& net, std::vector<std::string> overrides, int64_t broken = -1, int64_t out = kClasses,
              PlanOptions options = {}) {
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

data::Batch first_batch(const Plan& plan) {
  return data::read_batch(*plan.dataset,
                          {.seed = 1, .global = kGlobal, .slices = plan.layout.slices, .own_slices = {}}, 0);
}

std::vector<float> read_floats(const Session& session, const device::Tensor& from) {
  std::vector<float> values(static_cast<size_t>(from.numel()));
  session.parameters->read(from, values.data());
  return values;
}

device::Tensor statistic(const Session& session, const std::string& name) {
  for (const Parameters::Named& one : session.parameters->statistics()) {
    if (one.name == name) return one.master.values;
  }
  ADD_FAILURE() << "no statistic " << name;
  return {};
}

int number_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const base::Error& error) {
    return error.number();
  }
  return 0;
}

TEST_F(Autograd, GradientsAreLibTorchsOwn) {
  for (const char* slices : {"batch.slices=1", "batch.slices=4"}) {
    Net net(false), reference(false);
    Session session(plan_for(net, {slices, "batch.strands=1"}));
    const data::Batch batch = first_batch(session.plan);
    session.executor->step({.seed = 1, .learning_rate = 0, .valid_tokens = kGlobal},
                           {batch.inputs, batch.labels});
    session.executor->read_oldest();

    const int64_t of_slice = kGlobal / session.plan.layout.slices;
    std::vector<float> inputs(batch.inputs.size());
    std::transform(batch.inputs.begin(), batch.inputs.end(), inputs.begin(),
                   [](int32_t w) { return std::bit_cast<float>(w); });
    const std::vector<int64_t> labels(batch.labels.begin(), batch.labels.end());
    const at::Tensor x = at::from_blob(inputs.data(), {kGlobal, kWidth}), y = at::tensor(labels);
    // BatchNorm sees each slice on its own, here as there.
    for (int64_t s = 0; s < session.plan.layout.slices; ++s) {
      const at::Tensor logits = reference(x.narrow(0, s * of_slice, of_slice));
      const at::Tensor loss =
          at::cross_entropy_loss(logits, y.narrow(0, s * of_slice, of_slice), {}, at::Reduction::Sum) /
          kGlobal;
      loss.backward();
    }
    for (size_t b = 0; b < 2; ++b) {
      const model::BlockLayout layout = model::layout_of(session.plan.model->blocks[b]);
      const std::vector<float> ours =
          read_floats(session, session.memory->tensor(session.plan.program.blocks[b].gradients[0]));
      for (const auto& parameter : (b == 0 ? reference.first : reference.second)->named_parameters()) {
        const int64_t offset = layout.find("module." + parameter.key()).offset;
        const at::Tensor theirs = parameter.value().grad().contiguous();
        for (int64_t i = 0; i < theirs.numel(); ++i) {
          ASSERT_NEAR(ours[static_cast<size_t>(offset + i)], theirs.const_data_ptr<float>()[i], 2e-6)
              << slices << " block " << b << " " << parameter.key() << " " << i;
        }
      }
    }
  }
}

// The same net with its loss written as a function, per label and per sample, instead of the built-in one.
model::Model with_own_loss(const Net& net, device::DType type, bool per_sample) {
  model::Model model = build(net, type);
  model.blocks.pop_back();
  model.blocks.push_back(model::autograd_loss({.loss =
                                                   [=](const at::Tensor& outputs, const at::Tensor& labels) {
                                                     const at::Tensor each = at::cross_entropy_loss(
                                                         outputs, labels, {}, at::Reduction::None,
                                                         /*ignore_index=*/-1);
                                                     return per_sample ? each.unsqueeze(1) : each;
                                                   },
                                               .in = {kClasses},
                                               .type = type}));
  return model;
}

TEST_F(Autograd, ALossOfYourOwnTrainsAsTheBuiltInOneDoes) {
  std::vector<std::vector<double>> losses;
  for (const int which : {0, 1, 2}) {
    Net net(false);
    Own own;
    own.dataset = std::make_unique<Points>();
    own.build_model = [&](const recipe::Recipe&, device::DType type) {
      return which == 0 ? build(net, type) : with_own_loss(net, type, which == 2);
    };
    Session session(
        make_plan(recipe::read_recipe(
                      {.overrides = {"run.device=" + test_device(), "precision.tf32=false", "run.steps=6",
                                     "batch.global=32", "batch.slices=4", "batch.strands=2", "optim.lr=0.01",
                                     "optim.warmup=0", "log.eval_every=0", "run.threads=1"}}),
                  std::move(own)));
    struct : Observer {
      std::vector<double> losses;
      void stepped(const StepReport& r) override { losses.push_back(r.loss); }
    } seen;
    train(session, {}, seen);
    losses.push_back(seen.losses);
  }
  ASSERT_EQ(losses[0].size(), 6u);
  for (const size_t own : {1u, 2u}) {
    for (size_t step = 0; step < 6; ++step)
      EXPECT_NEAR(losses[own][step], losses[0][step], 2e-6) << own << " " << step;
  }
  EXPECT_LT(losses[0].back(), losses[0].front());
}

TEST_F(Autograd, ALossThatCannotBearALabelThatDoesNotCountIsRefusedBeforeTheFirstStep) {
  Net net;
  Own own;
  own.dataset = std::make_unique<Points>();
  own.build_model = [&](const recipe::Recipe&, device::DType type) {
    model::Model model = build(net, type);
    model.blocks.pop_back();
    model.blocks.push_back(model::autograd_loss(
        {.loss = [](const at::Tensor& x, const at::Tensor& y) { return at::cross_entropy_loss(x, y, {}, 0); },
         .in = {kClasses},
         .type = type}));
    return model;
  };
  EXPECT_EQ(
      number_of([&] {
        make_plan(recipe::read_recipe({.overrides = {"run.device=cpu", "batch.global=32"}}), std::move(own));
      }),
      173);
}

struct Outcome {
  std::string hash = {};
  std::vector<float> mean = {};
  int64_t batches = 0;
};

// No other rank is asked.
Outcome statistics_of(const Session& session) {
  Outcome outcome{.mean = read_floats(session, statistic(session, "first.1.running_mean"))};
  session.parameters->read(statistic(session, "first.1.num_batches_tracked"), &outcome.batches);
  return outcome;
}

Outcome outcome_of(const Session& session) {
  Outcome outcome = statistics_of(session);
  outcome.hash = session.parameters->hash();
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.hash, b.hash);
  EXPECT_EQ(a.mean, b.mean);
  EXPECT_EQ(a.batches, b.batches);
}

Outcome train_with(std::vector<std::string> overrides) {
  Net net;
  Session session(plan_for(net, std::move(overrides)));
  Observer nobody;
  train(session, {}, nobody);
  return outcome_of(session);
}

TEST_F(Autograd, RecomputationChangesNoBit) {
  const Outcome kept = train_with({});
  EXPECT_EQ(kept.batches, 6);
  expect_same(kept, train_with({"memory.recompute=full"}));
  expect_same(kept, train_with({"memory.recompute=every-2"}));
  expect_same(kept, train_with({"memory.recompute=module"}));
  EXPECT_NE(kept.hash, train_with({"run.seed=2"}).hash);
}

TEST_F(Autograd, StatisticsAreTheMeanOfWhatEachSliceMakesOfTheStepsBeginning) {
  Net net;
  Session session(plan_for(net, {}));
  const data::Batch batch = first_batch(session.plan);
  session.executor->step({.seed = 1, .learning_rate = 0, .valid_tokens = kGlobal},
                         {batch.inputs, batch.labels});
  session.executor->read_oldest();
  Net reference;
  std::vector<double> mean(kHidden, 0.0);
  for (int64_t s = 0; s < 4; ++s) {
    nn::Linear linear(std::dynamic_pointer_cast<nn::LinearImpl>(reference.first->ptr(0)));
    std::vector<float> inputs(8 * kWidth);
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = std::bit_cast<float>(batch.inputs[static_cast<size_t>(s) * inputs.size() + i]);
    }
    const at::Tensor of_slice = linear->forward(at::from_blob(inputs.data(), {8, kWidth})).mean(0).detach();
    for (int64_t i = 0; i < kHidden; ++i) {
      mean[static_cast<size_t>(i)] += 0.1 * static_cast<double>(of_slice.const_data_ptr<float>()[i]) / 4;
    }
  }
  const Outcome outcome = outcome_of(session);
  EXPECT_EQ(outcome.batches, 1);
  for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(outcome.mean[i], mean[i], 1e-6) << i;
}

// The same sample again and again: only what is dropped tells one slice from another, and one step from the
// next.
TEST_F(Autograd, EverySliceOfEveryStepDropsOtherElements) {
  class Same final : public data::Dataset {
   public:
    int64_t vocab() const override { return kClasses; }
    int64_t samples(data::Split) const override { return kGlobal; }
    int64_t inputs_per_sample(int64_t) const override { return kHidden; }
    int64_t labels_per_sample(int64_t) const override { return 1; }
    void read(data::Split, int64_t, std::span<int32_t> inputs, std::span<int32_t> labels) const override {
      for (size_t i = 0; i < inputs.size(); ++i)
        inputs[i] = std::bit_cast<int32_t>(static_cast<float>(std::sin(static_cast<double>(i))));
      labels[0] = 1;
    }
    std::string describe() const override { return "the same"; }
    uint64_t content_hash() const override { return 1; }
  };
  for (const bool drops : {false, true}) {
    Net net(drops);
    Own own;
    own.dataset = std::make_unique<Same>();
    own.build_model = [&](const recipe::Recipe&, device::DType type) {
      model::Model model{.family = "own", .compute = type, .predicts_tokens = false};
      model.blocks.push_back(model::autograd_block(
          {.name = "second",
           .module = net.second.ptr(),
           .forward = [module = net.second](const at::Tensor& x) mutable { return module->forward(x); },
           .in = {kHidden},
           .out = {kClasses},
           .type = type,
           .reads_batch = true}));
      model.blocks.push_back(model::block_of("loss", model::make_classify({type, kClasses})));
      return model;
    };
    Session session(
        make_plan(recipe::read_recipe({.overrides = {"run.device=cpu", "batch.global=32", "batch.slices=4",
                                                     "batch.strands=2", "run.threads=1"}}),
                  std::move(own)));
    std::set<double> losses;
    for (const auto& [seed, step] : {std::pair<uint64_t, uint64_t>{1, 0}, {1, 1}, {2, 0}}) {
      const data::Batch batch = first_batch(session.plan);
      session.executor->step({.seed = seed, .step = step, .learning_rate = 0, .valid_tokens = kGlobal},
                             {batch.inputs, batch.labels});
      const std::vector<double> of_slices = session.executor->read_losses();
      losses.insert(of_slices.begin(), of_slices.end());
      session.executor->read_oldest();
    }
    EXPECT_EQ(losses.size(), drops ? 12u : 1u);
  }
}

// Weights, statistics and losses, whoever computes which slice. Ranks are threads, so there is no dropout:
// LibTorch has one generator a process.
TEST_F(Autograd, GivesTheSameBitsOnSeveralRanks) {
  LS_NEEDS_HOST_MEMORY();  // ranks are threads that share it
  Net alone(false);
  std::string expected;
  Outcome statistics;
  {
    Session session(plan_for(alone, {"batch.strands=4"}));
    Observer nobody;
    expected = train(session, {}, nobody).params_hash;
    statistics = outcome_of(session);
  }
  struct Layout {
    int world;
    std::vector<std::string> words;
  };
  std::vector<Layout> layouts;
  for (const std::string zero : {"0", "1", "2", "3"}) {
    for (const int world : {2, 3, 4}) layouts.push_back({world, {"parallel.zero=" + zero}});
    if (zero != "0") layouts.push_back({4, {"parallel.zero=" + zero, "parallel.shard=2"}});  // HSDP
  }
  // Three blocks on two stages: gradients cross from one module to the other over the wire.
  layouts.push_back({2, {"parallel.pipeline=2"}});
  layouts.push_back({4, {"parallel.pipeline=2"}});
  layouts.push_back({4, {"parallel.pipeline=2", "parallel.zero=3"}});
  for (const Layout& layout : layouts) {
    std::vector<std::string> words = {"batch.strands=4"};
    words.insert(words.end(), layout.words.begin(), layout.words.end());
    SCOPED_TRACE(std::to_string(layout.world) + " ranks, " + layout.words.front() + ", " +
                 layout.words.back());
    std::vector<std::unique_ptr<Net>> nets;
    for (int r = 0; r < layout.world; ++r) nets.push_back(std::make_unique<Net>(false));
    on_ranks(layout.world, "shm", [&](comm::World& one) {
      Ranks ranks(one);
      Session session(plan_for(*nets[static_cast<size_t>(one.rank())], words, -1, kClasses, for_this(ranks)),
                      &ranks);
      Observer nobody;
      EXPECT_EQ(train(session, {}, nobody).params_hash, expected);
      if (session.plan.program.stages.self != 0) return;  // they lie on the first stage
      EXPECT_EQ(statistics_of(session).mean, statistics.mean);
      EXPECT_EQ(statistics_of(session).batches, statistics.batches);
    });
  }
}

TEST_F(Autograd, AStepThatIsSkippedLeavesStatisticsAlone) {
  Net net;
  Session session(
      plan_for(net, {"run.steps=8", "run.nonfinite=skip"}, 17));  // each sample comes once in 8 steps
  Observer nobody;
  const Summary summary = train(session, {}, nobody);
  EXPECT_EQ(summary.skipped, 1);
  const Outcome outcome = outcome_of(session);
  EXPECT_EQ(outcome.batches, 7);
  for (const float mean : outcome.mean) EXPECT_TRUE(std::isfinite(mean));
}

TEST_F(Autograd, TrainsAndTheModuleKeepsWhatWasTrained) {
  Net net;
  Summary summary;
  {
    Session session(plan_for(net, {"run.steps=60", "log.eval_every=20"}));
    Observer nobody;
    summary = train(session, {}, nobody);
  }
  EXPECT_LT(summary.loss, 0.2);
  ASSERT_TRUE(summary.eval_loss.has_value());
  EXPECT_LT(*summary.eval_loss, 0.1);
  net.first->eval();
  net.second->eval();
  const Points points;
  int right = 0;
  for (int64_t index = 0; index < 64; ++index) {
    std::vector<int32_t> words(kWidth), label(1);
    points.read(data::Split::eval, index, words, label);
    const at::Tensor x = at::from_blob(words.data(), {1, kWidth}, at::kFloat);
    right += net(x).argmax(1).item<int64_t>() == label[0] ? 1 : 0;
  }
  EXPECT_GE(right, 62);
}

TEST_F(Autograd, ACheckpointHoldsStatistics) {
  const base::TemporaryFolder folder;
  const Outcome whole = train_with({});
  std::string saved;
  Observer nobody;
  {
    Net net;
    Session session(plan_for(net, {"checkpoint.keep=9"}));
    TrainOptions options;
    options.save_every = 3;
    options.save = [&](int64_t step) {
      const std::string where = save_checkpoint(session, folder.path(), step);
      if (step == 3) saved = where;
    };
    train(session, options, nobody);
  }
  Net net;
  Session session(plan_for(net, {}));
  TrainOptions options;
  options.first_step = load_checkpoint(session, saved);
  EXPECT_EQ(options.first_step, 3);
  train(session, options, nobody);
  expect_same(whole, outcome_of(session));
}

// What is frozen keeps its bits, what is trained moves as if nothing were, and the checkpoint is whole.
TEST_F(Autograd, FrozenParametersStay) {
  const auto values_after = [](const std::vector<std::string>& words, Session& session) {
    one_step(session, 0, 0.01f);
    std::map<std::string, std::vector<float>> all;
    for (const Parameters::Named& one : session.parameters->named()) {
      std::vector<float>& values = all[one.name];
      values.resize(static_cast<size_t>(one.master.values.numel()));
      session.parameters->read(one.master.values, values.data());
      EXPECT_EQ(one.state.empty(), one.frozen) << one.name << " " << base::join(words, " ");
    }
    return all;
  };
  const std::vector<std::string> plain = {"optim.clip=0"};
  const Net one, other;
  Session whole(plan_for(one, plain)), still(plan_for(other, plain));
  const auto moved = values_after(plain, whole);
  std::map<std::string, std::vector<float>> before;
  for (const Parameters::Named& param : still.parameters->named()) {
    std::vector<float>& values = before[param.name];
    values.resize(static_cast<size_t>(param.master.values.numel()));
    still.parameters->read(param.master.values, values.data());
  }
  for (const char* frozen : {"first.*", "second.0.*", "*.bias", "second.*"}) {
    const std::vector<std::string> words = {"optim.clip=0", std::string("tune.freeze=") + frozen};
    const Net net;
    Session session(plan_for(net, words));
    const auto after = values_after(words, session);
    int stay = 0;
    for (const Parameters::Named& param : session.parameters->named()) {
      EXPECT_EQ(after.at(param.name), param.frozen ? before.at(param.name) : moved.at(param.name))
          << param.name << " with " << frozen;
      stay += param.frozen ? 1 : 0;
    }
    EXPECT_GT(stay, 0) << frozen;
    const base::TemporaryFolder run;
    const checkpoint::Opened saved(save_checkpoint(session, run.path(), 1));
    EXPECT_NO_THROW(checkpoint::audit(saved)) << frozen;
  }
}

TEST_F(Autograd, MetricsCountSamples) {
  const base::TemporaryFolder folder;
  Net net;
  Session session(plan_for(net, {"run.steps=2"}));
  RunFolder files(folder.path());
  files.begin(session.plan, 0);
  train(session, {}, files);
  const std::string metrics = base::read_file(folder.path() + "/metrics.jsonl", 1 << 20);
  EXPECT_NE(metrics.find("\"samples\":64"), std::string::npos) << metrics;
  EXPECT_EQ(metrics.find("tokens"), std::string::npos) << metrics;
}

TEST_F(Autograd, MemoryOfTheGraphIsCounted) {
  Net net;
  const Plan one = plan_for(net, {"batch.slices=1", "batch.strands=1"}), four = plan_for(net, {});
  // BatchNorm and ReLU keep at least their inputs, each [samples, hidden].
  EXPECT_GE(one.memory.external_bytes, 2 * kGlobal * kHidden * 4);
  EXPECT_LT(four.memory.external_bytes, one.memory.external_bytes);
  EXPECT_EQ(net.first->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 0)
      << "the trial left a trace";
}

TEST_F(Autograd, WrongShapesAreNamed) {
  Net net;
  EXPECT_EQ(number_of([&] { plan_for(net, {}, -1, kClasses + 1); }), 173);
  Own own;
  own.dataset = std::make_unique<Points>();
  own.build_model = [&](const recipe::Recipe&, device::DType type) {
    model::Model model = build(net, type);
    model.input_words = kWidth + 1;
    return model;
  };
  EXPECT_EQ(
      number_of([&] { make_plan(recipe::read_recipe({.overrides = {"run.device=cpu"}}), std::move(own)); }),
      176);
  EXPECT_EQ(number_of([] { model::autograd_block({.name = "empty"}); }), 172);
}

}  // namespace
}  // namespace lockstep::run
