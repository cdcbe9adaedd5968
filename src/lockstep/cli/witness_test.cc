// The program as a whole against numbers from outside: what PyTorch found in the models of tools/samples, and
// the softmax of a model in fp64.
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/cli/testing.h"
#include "lockstep/run/reference/sampling.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::json;

const std::string kSamples = LOCKSTEP_SOURCE "/tools/samples/huggingface";
const std::string kData = "run.device=cpu precision.compute=fp32 data.kind=tokens data.path=" + kSamples +
                          "/train.bin data.eval_path=" + kSamples + "/eval.bin data.seq_len=16 ";
// As tools/samples/huggingface.py trains.
const std::string kTrain =
    "run.steps=3 batch.global=6 batch.slices=6 batch.strands=6 optim.schedule=constant optim.warmup=0 "
    "optim.lr=0.01 "
    "optim.weight_decay=0.1 optim.clip=0.5 optim.beta1=0.9 optim.beta2=0.95 optim.epsilon=1e-3 ";

Json expected_of(const std::string& sample) {
  return Json::parse(base::read_file(kSamples + "/expected.json")).at(sample);
}

Json output_of(const std::string& folder, const std::string& line) {
  const Outcome outcome = run_shell(folder, line + " 2>/dev/null");
  EXPECT_EQ(outcome.code, 0) << line << "\n" << outcome.output;
  return Json::parse(outcome.output.substr(outcome.output.find('{')), nullptr, false);
}

TEST(Witness, TrainsAndEvaluatesAsPyTorchDoes) {
  for (const std::string sample : {"gpt2-tied", "llama-untied"}) {
    SCOPED_TRACE(sample);
    const base::TemporaryFolder folder;
    const Json expected = expected_of(sample);
    double mean = 0;
    for (const Json& loss : expected.at("eval")) mean += loss.get<double>() / 5;
    // Five windows in batches of two: the last counts too.
    const std::string there = kSamples + "/" + sample;
    const Json before =
        output_of(folder.path(), "$L eval " + there + " --json batch.global=6 batch.slices=3 " + kData);
    EXPECT_NEAR(before.at("loss").get<double>(), mean, 1e-5);

    const Outcome trained = run_shell(
        folder.path(), "$L train run.name=one model.from=" + there + " log.eval_every=0 " + kTrain + kData);
    ASSERT_EQ(trained.code, 0) << trained.output;
    size_t step = 0;
    double eval_loss = 0;
    for (const std::string& text :
         base::split_lines(base::read_file(folder.path() + "/runs/one/metrics.jsonl"))) {
      const Json line = Json::parse(text);
      if (line.contains("eval_loss")) eval_loss = line.at("eval_loss");
      if (!line.contains("loss")) continue;
      const Json& theirs = expected.at("steps").at(step++);
      EXPECT_NEAR(line.at("loss").get<double>(), theirs.at("loss").get<double>(), 1e-5);
      EXPECT_NEAR(line.at("grad_norm").get<double>(), theirs.at("grad_norm").get<double>(), 2e-5);
      EXPECT_NEAR(line.at("lr").get<double>(), 0.01, 1e-8);
    }
    EXPECT_EQ(step, 3u);
    const double after = expected.at("eval_after");
    EXPECT_NEAR(eval_loss, after, 1e-5);
    EXPECT_NEAR(output_of(folder.path(), "$L eval runs/one --json").at("loss").get<double>(), after, 1e-5);
    ASSERT_EQ(run_shell(folder.path(), "$L export runs/one exported").code, 0);
    EXPECT_NEAR(output_of(folder.path(), "$L eval exported --json " + kData).at("loss").get<double>(), after,
                1e-5);
  }
}

reference::Weights weights_of(const std::string& folder) {
  const checkpoint::Opened opened(folder);
  reference::Weights weights;
  for (const std::string& name : opened.names()) {
    const checkpoint::Whole whole = opened.find(name);
    if (whole.kind != checkpoint::Kind::weight) continue;
    const auto rows = static_cast<size_t>(whole.shape.rank() > 1 ? whole.shape[0] : 1);
    std::vector<float> values(static_cast<size_t>(whole.shape.numel()));
    opened.read({{checkpoint::whole_piece({name, device::DType::f32, whole.shape}), values.data()}});
    weights[name] = reference::matrix(rows, values.size() / rows);
    weights[name]->value.assign(values.begin(), values.end());
  }
  return weights;
}

TEST(Witness, GeneratesAsTheSoftmaxSays) {
  const base::TemporaryFolder folder;
  const Outcome trained = run_shell(folder.path(), "$L train run.name=one model.from=" + kSamples +
                                                       "/gpt2-tied log.eval_every=0 " + kTrain + kData);
  ASSERT_EQ(trained.code, 0) << trained.output;
  reference::Weights weights = weights_of(folder.path() + "/runs/one/checkpoints/step-00000003");
  const reference::Words words({"model.layers=2", "model.heads=3", "model.norm_epsilon=1e-4"});
  constexpr size_t kContext = 20;
  struct Row {
    double temperature;
    size_t top_k;
  };
  for (const Row& row : {Row{1, 0}, Row{0.4, 0}, Row{2.5, 0}, Row{1, 3}}) {
    SCOPED_TRACE(fmt::format("temperature {}, top {}", row.temperature, row.top_k));
    const Json said = output_of(
        folder.path(),
        fmt::format("$L generate --run runs/one --json --tokens 300 --seed 5 --temperature {} --top-k {}",
                    row.temperature, row.top_k));
    const std::vector<int32_t> text = said.at("tokens");
    ASSERT_EQ(text.size(), 301u);
    reference::Surprise surprise;
    size_t first = 0;  // of what the model still sees: a full context keeps its later half
    for (size_t n = 1; n < text.size(); ++n) {
      const std::vector<int32_t> seen(text.begin() + static_cast<std::ptrdiff_t>(first),
                                      text.begin() + static_cast<std::ptrdiff_t>(n));
      const std::vector<double> chances =
          reference::chances(reference::logits_after(words, weights, seen), row.temperature, row.top_k);
      const auto drawn = static_cast<size_t>(text[n]);
      ASSERT_GT(chances[drawn], 0) << n;
      surprise.add(chances, drawn);
      if (seen.size() == kContext) first = n + 1 - kContext / 2;
    }
    EXPECT_LT(std::fabs(surprise.deviations()), 4);
  }
}

// Of nine steps: which are logged, evaluated and saved, and what of that stays.
TEST(Witness, HeedsTheKeysOfLogsAndCheckpoints) {
  const base::TemporaryFolder folder;
  const Outcome trained = run_shell(
      folder.path(),
      "$L train run.name=one run.device=cpu model.layers=1 model.hidden=16 model.heads=2 data.seq_len=8 "
      "batch.global=4 batch.slices=2 batch.strands=2 run.steps=9 log.every=2 log.eval_every=3 "
      "log.eval_batches=1 checkpoint.every=2 checkpoint.keep=1 checkpoint.keep_every=6");
  ASSERT_EQ(trained.code, 0) << trained.output;
  std::vector<int64_t> logged, evaluated;
  for (const std::string& text :
       base::split_lines(base::read_file(folder.path() + "/runs/one/metrics.jsonl"))) {
    const Json line = Json::parse(text);
    (line.contains("eval_loss") ? evaluated : logged).push_back(line.at("step"));
  }
  EXPECT_EQ(logged, (std::vector<int64_t>{2, 4, 6, 8}));
  EXPECT_EQ(evaluated, (std::vector<int64_t>{3, 6, 9}));
  std::vector<int64_t> kept;
  for (const std::string& checkpoint : checkpoint::list(folder.path() + "/runs/one"))
    kept.push_back(checkpoint::Opened(checkpoint).manifest()->step);
  EXPECT_EQ(kept, (std::vector<int64_t>{9, 6}));
}

}  // namespace
}  // namespace lockstep::cli
