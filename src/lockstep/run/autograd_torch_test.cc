// Models of torch::nn::Module, trained through a whole session: gradients, losses, bits in every layout.
#include "lockstep/run/autograd_testing.h"

namespace lockstep::run {
namespace {

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

}  // namespace
}  // namespace lockstep::run
