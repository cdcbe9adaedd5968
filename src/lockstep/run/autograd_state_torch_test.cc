// What sessions of torch::nn::Module keep: statistics, checkpoints, frozen parameters, memory; and what is
// refused.
#include "lockstep/run/autograd_testing.h"

namespace lockstep::run {
namespace {

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
