// Whole runs against a training loop in fp64 that shares no line with them: every key on its way to a kernel.
//
// Runs that are compared with themselves cannot see what all of them get wrong: decay that never arrives, a
// rate of the wrong step, a clip that clips nothing. Here losses, norms, rates and every parameter stand
// beside what the papers say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/reference/loop.h"
#include "lockstep/run/reference/session.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

using Strings = std::vector<std::string>;
constexpr size_t kVocab = 21, kSeqLen = 7, kTrain = 10, kEval = 5;

// A stream of tokens, cut into windows here as the docs say that the trainer cuts it.
std::vector<uint16_t> stream(size_t samples, uint64_t key) {
  std::vector<uint16_t> tokens(samples * kSeqLen + 1);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<uint16_t>(reference::split_mix(i * 977 + key) % kVocab);
  return tokens;
}
std::string bytes_of(const std::vector<uint16_t>& tokens) {
  std::string bytes(tokens.size() * sizeof(uint16_t), '\0');
  std::memcpy(bytes.data(), tokens.data(), bytes.size());
  return bytes;
}
std::vector<reference::Sample> windows(const std::vector<uint16_t>& tokens) {
  std::vector<reference::Sample> samples;
  for (size_t at = 0; at + kSeqLen < tokens.size(); at += kSeqLen) {
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(at);
    samples.push_back({{begin, begin + kSeqLen}, {begin + 1, begin + kSeqLen + 1}});
  }
  return samples;
}

struct Watcher : Observer {
  std::vector<StepReport> steps;
  std::vector<double> evals;
  void stepped(const StepReport& report) override { steps.push_back(report); }
  void evaluated(int64_t, double loss) override { evals.push_back(loss); }
};

// How near a run must come, as shares of what it is compared with. A GPU's exponentials are approximations.
const double kDevice = test_device() == "cpu" ? 1 : 10;
struct Near {
  double loss = 1e-6 * kDevice, norm = 5e-6 * kDevice, moved = 1e-4 * kDevice;
};

struct Row {
  const char* name;
  Strings words;
  Near near{};
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class AgainstFp64 : public testing::TestWithParam<Row> {};

Strings all_words(const Strings& more, const base::TemporaryFolder& folder, bool eval_path = true) {
  Strings words = {"model.layers=2",
                   "model.hidden=12",
                   "model.heads=2",
                   "model.vocab=" + std::to_string(kVocab),
                   "data.seq_len=" + std::to_string(kSeqLen),
                   "batch.global=6",
                   "batch.slices=3",
                   "model.init_std=0.2",
                   "precision.compute=fp32",
                   "run.steps=5",
                   "optim.warmup=2",
                   "optim.lr=0.02",
                   "optim.epsilon=1e-3",  // what has no gradient but rounding stays where it is
                   "log.eval_every=2"};
  words.insert(words.end(), more.begin(), more.end());
  for (const std::string& word :
       {"run.device=" + test_device(), std::string("precision.tf32=false"), std::string("data.kind=tokens"),
        "data.path=" + folder.path() + "/train.bin"})
    words.push_back(word);
  if (eval_path) words.push_back("data.eval_path=" + folder.path() + "/eval.bin");
  return words;
}

void expect_near(const reference::Loop& loop, const reference::Weights& before,
                 const reference::Weights& after, double share) {
  ASSERT_EQ(loop.weights().size(), after.size());
  for (const auto& [name, expected] : loop.weights()) {
    double apart = 0, moved = 0;
    size_t left_out = 0;
    for (size_t i = 0; i < expected->value.size(); ++i) {
      if (loop.undecided(name, i)) {
        ++left_out;
        continue;
      }
      apart += std::pow(after.at(name)->value[i] - expected->value[i], 2);
      moved += std::pow(before.at(name)->value[i] - expected->value[i], 2);
    }
    EXPECT_LE(std::sqrt(apart), share * std::sqrt(moved) + 1e-7 * std::sqrt(expected->value.size()))
        << name << ", which moved by " << std::sqrt(moved);
    EXPECT_LE(left_out * 2, expected->value.size()) << name;
  }
}

using Samples = std::vector<reference::Sample>;

// Trains the session and the reference from the same weights on the same samples.
void expect_as_in_fp64(Session& session, const Strings& words, const Samples& to_train,
                       const Samples& to_evaluate, const Near& near = {}) {
  reference::stir(session);
  const reference::Weights before = reference::read_back(session);
  Watcher watcher;
  train(session, {}, watcher);

  reference::Loop loop(reference::Words(words), to_train, to_evaluate, reference::copy_of(before));
  size_t evals = 0;
  for (size_t step = 0; step < watcher.steps.size(); ++step) {
    SCOPED_TRACE(fmt::format("step {}", step + 1));
    const StepReport& report = watcher.steps[step];
    const reference::Report expected = loop.step(step, report.applied);
    EXPECT_NEAR(report.loss, expected.loss, near.loss * expected.loss);
    if (report.applied) {
      EXPECT_NEAR(report.grad_norm, expected.grad_norm, near.norm * expected.grad_norm);
    }
    EXPECT_NEAR(report.learning_rate, expected.rate, 1e-7 * expected.rate);
    if ((step + 1) % 2 == 0 || step + 1 == watcher.steps.size()) {
      ASSERT_LT(evals, watcher.evals.size());
      const double eval = loop.evaluate();
      EXPECT_NEAR(watcher.evals[evals++], eval, near.loss * eval);
    }
  }
  EXPECT_EQ(watcher.steps.size(), 5u);
  EXPECT_EQ(evals, watcher.evals.size());
  expect_near(loop, before, reference::read_back(session), near.moved);
}

TEST_P(AgainstFp64, LossesNormsRatesAndParameters) {
  const base::TemporaryFolder folder;
  const std::vector<uint16_t> train_tokens = stream(kTrain, 1), eval_tokens = stream(kEval, 2);
  folder.write("train.bin", bytes_of(train_tokens));
  folder.write("eval.bin", bytes_of(eval_tokens));
  const Strings words = all_words(GetParam().words, folder);
  Session session(make_plan(recipe::read_recipe({.file = "", .overrides = words}), {}));
  expect_as_in_fp64(session, words, windows(train_tokens), windows(eval_tokens), GetParam().near);
}

// A third of ten windows is three: the last ones are held out, and nobody trains on them.
TEST(AgainstFp64More, WindowsThatAreHeldOut) {
  const base::TemporaryFolder folder;
  const std::vector<uint16_t> tokens = stream(10, 1);
  folder.write("train.bin", bytes_of(tokens));
  const Strings words = all_words({"data.eval_fraction=0.34"}, folder, false);
  const Samples all = windows(tokens);
  Session session(make_plan(recipe::read_recipe({.file = "", .overrides = words}), {}));
  expect_as_in_fp64(session, words, {all.begin(), all.begin() + 7}, {all.begin() + 7, all.end()});
}

// Samples of which some labels count for nothing, in some slices more than in others.
class Masked final : public data::Dataset {
 public:
  Masked(Samples to_train, Samples to_evaluate) : train_(std::move(to_train)), eval_(std::move(to_evaluate)) {
    uint64_t key = 5;
    for (Samples* samples : {&train_, &eval_})
      for (reference::Sample& sample : *samples)
        for (int32_t& label : sample.labels) label = reference::split_mix(++key) % 3 == 0 ? label : -1;
  }
  int64_t vocab() const override { return kVocab; }
  int64_t samples(data::Split split) const override { return static_cast<int64_t>(of(split).size()); }
  void read(data::Split split, int64_t index, std::span<int32_t> inputs,
            std::span<int32_t> labels) const override {
    const reference::Sample& sample = of(split)[static_cast<size_t>(index)];
    std::copy(sample.inputs.begin(), sample.inputs.end(), inputs.begin());
    std::copy(sample.labels.begin(), sample.labels.end(), labels.begin());
  }
  std::string describe() const override { return "masked"; }
  uint64_t content_hash() const override { return 1; }
  const Samples& of(data::Split split) const { return split == data::Split::train ? train_ : eval_; }

 private:
  Samples train_, eval_;
};

TEST(AgainstFp64More, LabelsThatCountForNothing) {
  for (const char* family : {"gpt2", "llama", "mlp"}) {
    SCOPED_TRACE(family);
    const base::TemporaryFolder folder;
    const Strings words = all_words({std::string("model.family=") + family}, folder);
    const Masked data(windows(stream(kTrain, 1)), windows(stream(kEval, 2)));
    Own own;
    own.dataset = std::make_unique<Masked>(data);
    Session session(make_plan(recipe::read_recipe({.file = "", .overrides = words}), std::move(own)));
    expect_as_in_fp64(session, words, data.of(data::Split::train), data.of(data::Split::eval));
  }
}

// A scale that overflows at first: steps that are skipped move nothing, and Adam does not count them; data
// and rates go on all the same.
TEST(AgainstFp64More, StepsThatAreSkipped) {
  const base::TemporaryFolder folder;
  const std::vector<uint16_t> train_tokens = stream(kTrain, 1), eval_tokens = stream(kEval, 2);
  folder.write("train.bin", bytes_of(train_tokens));
  folder.write("eval.bin", bytes_of(eval_tokens));
  const Strings words = all_words({"precision.compute=fp16", "precision.loss_scale=6e5"}, folder);
  Session session(make_plan(recipe::read_recipe({.file = "", .overrides = words}), {}));
  expect_as_in_fp64(session, words, windows(train_tokens), windows(eval_tokens),
                    {.loss = 1e-3, .norm = 5e-3, .moved = 2e-2});
  kernels::StepState state;
  session.parameters->read(session.parameters->state(), &state);
  EXPECT_GE(state.skipped, 1) << state.applied;
  EXPECT_GE(state.applied, 2) << state.skipped;
}

// The scale of fp16 doubles behind so many good steps in a row.
TEST(AgainstFp64More, ScalesOfFp16) {
  const base::TemporaryFolder folder;
  folder.write("train.bin", bytes_of(stream(kTrain, 1)));
  folder.write("eval.bin", bytes_of(stream(kEval, 2)));
  const Strings words = all_words(
      {"precision.compute=fp16", "precision.loss_scale=256", "precision.growth_interval=2"}, folder);
  Session session(make_plan(recipe::read_recipe({.file = "", .overrides = words}), {}));
  Watcher watcher;
  train(session, {}, watcher);
  std::vector<float> scales;
  for (const StepReport& report : watcher.steps) scales.push_back(report.loss_scale);
  EXPECT_EQ(scales, (std::vector<float>{256, 512, 512, 1024, 1024}));
}

// Losses of narrow numbers are off by their rounding, and what they move by a few parts in a hundred.
constexpr Near kNarrow{.loss = 1e-2, .norm = 8e-2, .moved = 0.1},
    kFp8{.loss = 6e-2, .norm = 0.25, .moved = 0.5};

INSTANTIATE_TEST_SUITE_P(
    Recipes, AgainstFp64,
    testing::Values(
        // Optimizers.
        Row{"adamw", {}},
        Row{"adamw_constants", {"optim.beta1=0.7", "optim.beta2=0.8", "optim.epsilon=0.02"}},
        Row{"adamw_clipped", {"optim.clip=0.05"}}, Row{"adamw_not_clipped", {"optim.clip=0"}},
        Row{"sgd", {"optim.name=sgd", "optim.lr=0.3", "optim.clip=0"}},
        Row{"sgd_momentum_clipped",
            {"optim.name=sgd", "optim.lr=0.3", "optim.momentum=0.5", "optim.clip=0.1"}},
        Row{"sgd_no_momentum", {"optim.name=sgd", "optim.lr=0.3", "optim.momentum=0"}},
        Row{"lion", {"optim.name=lion", "optim.lr=0.004"}},
        Row{"lion_constants_clipped",
            {"optim.name=lion", "optim.lr=0.004", "optim.beta1=0.6", "optim.beta2=0.7", "optim.clip=0.1"}},
        Row{"moments_bf16", {"optim.moments=bf16"}, {.loss = 1e-3, .norm = 1e-2, .moved = 1e-2}},
        // Muon: what Newton and Schulz make of small singular values is sensitive.
        Row{"muon", {"optim.name=muon", "optim.momentum=0.95"}, {.loss = 1e-5, .norm = 5e-5, .moved = 1e-3}},
        Row{"muon_llama_untied",
            {"optim.name=muon", "optim.momentum=0.8", "model.family=llama", "model.tied=false",
             "optim.weight_decay=0.9", "optim.clip=0.1", "model.ffn=20"},
            {.loss = 1e-5, .norm = 5e-5, .moved = 1e-3}},
        Row{"muon_by_group",
            {"optim.groups=*.mlp.*.weight kind=muon lr_scale=0.5,*.attn.*.weight kind=sgd"},
            {.loss = 1e-5, .norm = 5e-5, .moved = 1e-3}},
        // Parameter groups.
        Row{"frozen_embedding", {"tune.freeze=*.wte.*,*.wpe.*", "model.tied=false"}},
        Row{"frozen_tied_embedding", {"tune.freeze=*wte*"}},
        Row{"only_the_head", {"tune.train=lm_head.*", "model.tied=false"}},
        Row{"only_biases", {"tune.train=*.bias"}}, Row{"only_norms", {"tune.train=*.ln_*"}},
        Row{"only_positions", {"tune.train=*wpe*"}},
        Row{"only_the_middle", {"tune.train=*.h.0.mlp.*,*.h.1.attn.c_proj.*"}},
        Row{"only_down", {"tune.train=*.h.0.mlp.c_proj.*"}},
        Row{"frozen_layer_llama", {"tune.freeze=model.layers.1.*", "model.family=llama", "optim.name=sgd"}},
        Row{"frozen_llama_recompute",
            {"tune.train=*down_proj*,*norm*", "model.family=llama", "memory.recompute=full"}},
        Row{"frozen_mlp_cheap",
            {"tune.freeze=embedding*,layers.0.*", "model.family=mlp", "model.tied=false",
             "memory.recompute=cheap"}},
        Row{"frozen_by_group", {"optim.groups=*.attn.* frozen=true,*.attn.c_proj.bias frozen=false"}},
        Row{"rates_and_decays",
            {"optim.groups=*.attn.* lr_scale=0.1 weight_decay=0.7,*.mlp.* lr_scale=3,*.bias "
             "weight_decay=0.5"}},
        Row{"rules_by_group",
            {"optim.groups=*.attn.* kind=sgd lr_scale=5,*.mlp.* kind=lion lr_scale=0.1", "optim.clip=0.5"}},
        Row{"layer_wise_rates", {"optim.layer_lr_decay=0.5", "optim.groups=*.mlp.* lr_scale=2"}},
        Row{"layer_wise_rates_llama", {"optim.layer_lr_decay=0.7", "model.family=llama", "model.tied=false"}},
        // Decay.
        Row{"no_decay", {"optim.weight_decay=0"}}, Row{"decay", {"optim.weight_decay=0.9"}},
        Row{"decay_all", {"optim.weight_decay=0.9", "optim.decay_all=true"}},
        Row{"sgd_decay", {"optim.name=sgd", "optim.weight_decay=0.9"}},
        Row{"sgd_decay_all", {"optim.name=sgd", "optim.weight_decay=0.9", "optim.decay_all=true"}},
        Row{"lion_decay_all", {"optim.name=lion", "optim.weight_decay=0.9", "optim.decay_all=true"}},
        // Rates.
        Row{"constant", {"optim.schedule=constant", "optim.warmup=0"}},
        Row{"linear", {"optim.schedule=linear", "optim.min_lr=0.3"}},
        Row{"cosine", {"optim.schedule=cosine", "optim.warmup=1", "optim.min_lr=0"}},
        Row{"wsd", {"optim.schedule=wsd", "optim.decay_fraction=0.6", "optim.min_lr=0.2"}},
        Row{"linear_and_on", {"optim.schedule=linear", "optim.decay_steps=4"}},
        Row{"cosine_and_on", {"optim.warmup=1", "optim.decay_steps=3"}},
        Row{"wsd_and_on", {"optim.schedule=wsd", "optim.decay_steps=4", "optim.decay_fraction=0.5"}},
        Row{"inverse_sqrt", {"optim.schedule=inverse_sqrt"}},
        Row{"rate_by_batch", {"optim.lr_scale=linear", "optim.base_batch=24"}},
        Row{"rate_by_root_of_batch", {"optim.lr_scale=sqrt", "optim.base_batch=24"}},
        // How the batch is cut and read.
        Row{"one_slice", {"batch.slices=1"}},
        Row{"six_slices_two_strands", {"batch.slices=6", "batch.strands=2"}},
        Row{"six_slices_six_strands", {"batch.slices=6", "batch.strands=6"}},
        Row{"another_order", {"run.seed=9", "data.workers=2"}},
        Row{"more_than_an_epoch", {"batch.global=12"}},
        Row{"evaluated_in_part", {"log.eval_batches=2", "batch.slices=6"}},
        // Memory.
        Row{"chunked_logits", {"memory.logits_chunk=5"}}, Row{"recompute", {"memory.recompute=full"}},
        Row{"recompute_cheap", {"memory.recompute=cheap"}},
        // Models.
        Row{"gpt2_untied", {"model.tied=false", "model.ffn=20", "model.heads=3"}},
        Row{"gpt2_odd_width", {"model.hidden=15", "model.heads=3", "model.ffn=13"}},
        Row{"gpt2_epsilon_one_layer", {"model.layers=1", "model.norm_epsilon=0.1", "model.context=11"}},
        Row{"gpt2_dropout", {"model.dropout=0.3", "run.seed=4"}},
        Row{"gpt2_dropout_recompute", {"model.dropout=0.3", "batch.slices=2", "memory.recompute=full"}},
        Row{"llama", {"model.family=llama"}},
        Row{"llama_grouped_wide_heads",
            {"model.family=llama", "model.heads=4", "model.kv_heads=2", "model.head_dim=6",
             "model.rope_theta=20", "model.ffn=20", "model.tied=false"}},
        Row{"llama_dropout_epsilon",
            {"model.family=llama", "model.dropout=0.2", "model.norm_epsilon=0.1", "model.kv_heads=1"}},
        Row{"mlp", {"model.family=mlp"}},
        Row{"mlp_untied_dropout",
            {"model.family=mlp", "model.tied=false", "model.dropout=0.2", "model.ffn=20"}},
        // Narrow numbers.
        Row{"gpt2_bf16", {"precision.compute=bf16"}, kNarrow},
        Row{"llama_bf16", {"precision.compute=bf16", "model.family=llama"}, kNarrow},
        Row{"gpt2_fp8",
            {"precision.compute=fp8", "model.hidden=16", "batch.global=16", "batch.slices=1"},
            kFp8},
        Row{"llama_fp8_rows",
            {"precision.compute=fp8", "precision.fp8_scaling=row", "model.family=llama", "model.hidden=16",
             "model.ffn=48", "batch.global=16", "batch.slices=1", "precision.fp8_gradients=e4m3",
             "optim.lr=1e-3"},  // slow enough that a rounding does not grow from step to step
            kFp8},
        Row{"gpt2_fp16", {"precision.compute=fp16"}, {.loss = 1e-3, .norm = 5e-3, .moved = 2e-2}},
        Row{"llama_fp16",
            {"precision.compute=fp16", "precision.loss_scale=1024", "model.family=llama", "optim.name=sgd"},
            {.loss = 1e-3, .norm = 5e-3, .moved = 2e-2}}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace lockstep::run
