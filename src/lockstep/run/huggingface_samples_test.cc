// Models that transformers made, with what PyTorch finds in them: tools/samples/huggingface.py wrote both
// down.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/run/loop/evaluate.h"
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

using Json = nlohmann::json;

const std::string kSamples = LOCKSTEP_SOURCE "/tools/samples/huggingface";

// What the script trains with. A batch is all of train.bin, so that the order of samples does not matter.
recipe::Resolved recipe_from(const std::string& folder) {
  // Dynamic scaling is for sequences longer than the model says that it can see.
  const std::string context = folder.ends_with("dynamic") ? "model.context=16" : "model.context=auto";
  return recipe::read_recipe({.file = "",
                              .overrides = {"model.from=" + folder,
                                            context,
                                            "run.device=" + test_device(),
                                            "run.steps=3",
                                            "precision.compute=fp32",
                                            "precision.tf32=false",
                                            "data.kind=tokens",
                                            "data.path=" + kSamples + "/train.bin",
                                            "data.eval_path=" + kSamples + "/eval.bin",
                                            "data.seq_len=16",
                                            "batch.global=6",
                                            "batch.slices=6",
                                            "optim.schedule=constant",
                                            "optim.warmup=0",
                                            "optim.lr=0.01",
                                            "optim.weight_decay=0.1",
                                            "optim.clip=0.5",
                                            "optim.beta1=0.9",
                                            "optim.beta2=0.95",
                                            "optim.epsilon=1e-3",
                                            "log.eval_every=0"}});
}

struct Watcher : Observer {
  std::vector<StepReport> steps;
  void stepped(const StepReport& report) override { steps.push_back(report); }
};

class HuggingFaceSamples : public testing::TestWithParam<const char*> {};

TEST_P(HuggingFaceSamples, EvaluateAndTrainAsPyTorchDoes) {
  const Json expected = Json::parse(base::read_file(kSamples + "/expected.json")).at(GetParam());
  Session session(make_plan(recipe_from(kSamples + "/" + GetParam()), {}));

  Evaluator evaluator(session);
  double sum = 0;
  const auto windows = static_cast<int64_t>(expected.at("eval").size());
  for (int64_t n = 1; n <= windows; ++n) {  // the mean over the first n windows
    sum += expected.at("eval").at(static_cast<size_t>(n - 1)).get<double>();
    EXPECT_NEAR(evaluator.run(n).value(), sum / static_cast<double>(n), 1e-5) << n;
  }

  Watcher watcher;
  const Summary summary = train(session, {}, watcher);
  const Json& steps = expected.at("steps");
  ASSERT_EQ(watcher.steps.size(), steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_NEAR(watcher.steps[i].loss, steps[i].at("loss").get<double>(), 1e-5) << i;
    EXPECT_NEAR(watcher.steps[i].grad_norm, steps[i].at("grad_norm").get<double>(), 2e-5) << i;
  }
  EXPECT_NEAR(summary.eval_loss.value(), expected.at("eval_after").get<double>(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Samples, HuggingFaceSamples,
                         testing::Values("gpt2-tied", "gpt2-untied-fp16", "llama-untied",
                                         "llama-tied-llama3-bf16", "llama-wide-yarn", "llama-yarn",
                                         "llama-linear", "gpt2-gelu", "gpt2-relu-bin", "llama-biased-gelu",
                                         "llama-biased-tied-bin", "llama-dynamic", "llama-longrope-long",
                                         "llama-longrope-short", "mistral-window", "qwen2-window-tied",
                                         "qwen3", "qwen3-window-biased", "gemma2", "gemma3", "phi",
                                         "phi3-window", "phi3-longrope", "olmo2", "smollm3", "gpt-neox",
                                         "gpt-neox-serial"),
                         [](const auto& sample) {
                           std::string name = sample.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::run
