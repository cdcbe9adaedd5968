// LoRA as a person uses it: train, stop and resume, evaluate, generate, export, merge.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

const std::string kSmall =
    " run.device=cpu data.seq_len=16 batch.global=8 batch.slices=8 log.eval_every=0 --json 2>/dev/null";

nlohmann::json json_of(const std::string& folder, const std::string& line) {
  const Outcome outcome = run_shell(folder, line);
  EXPECT_EQ(outcome.code, 0) << line << "\n" << outcome.output;
  return nlohmann::json::parse(outcome.output, nullptr, false);
}

// A Llama of our own in the folder `model`, with as many layers as two ranks in a row need.
void make_model(const std::string& folder) {
  json_of(folder,
          "$L train model.family=llama model.layers=2 model.hidden=32 model.tied=false run.steps=2" + kSmall);
  json_of(folder, "$L export runs/first model --json");
}

const std::string kLora =
    "$L train model.from=model tune.method=lora optim.lr=0.02 optim.warmup=0 run.name=lora ";

TEST(LoraCommands, TrainEvaluateGenerateAndExport) {
  base::TemporaryFolder folder;
  const std::string& at = folder.path();
  make_model(at);
  const auto trained = json_of(at, kLora + "run.steps=6" + kSmall);
  const auto inspected = json_of(at, "$L inspect runs/lora --check --json");
  EXPECT_EQ(inspected["params_hash"], trained["params_hash"]);
  EXPECT_EQ(inspected["base"], fs::canonical(at + "/model").string());
  for (const auto& tensor : inspected["tensors"])
    EXPECT_NE(tensor["name"].get<std::string>().find(".lora_"), std::string::npos) << tensor;

  const std::string of_data = " run.device=cpu data.seq_len=16 batch.slices=8 --json";
  const auto ours = json_of(at, "$L eval runs/lora run.device=cpu --json");
  EXPECT_NEAR(ours["loss"].get<double>(), trained["eval_loss"].get<double>(), 1e-6);
  json_of(at, "$L export runs/lora adapter --json");
  EXPECT_TRUE(fs::exists(at + "/adapter/adapter_config.json") &&
              fs::exists(at + "/adapter/adapter_model.safetensors"));
  EXPECT_EQ(json_of(at, "$L export runs/lora --merge --out merged --json")["merged"], true);
  for (const char* line :
       {"$L eval model --adapter adapter", "$L eval model --adapter runs/lora", "$L eval adapter"})
    EXPECT_EQ(json_of(at, line + of_data)["loss_hex"], ours["loss_hex"]) << line;
  for (const char* line : {"$L eval merged", "$L eval runs/lora tune.method=full"})
    EXPECT_NEAR(json_of(at, line + of_data)["loss"].get<double>(), ours["loss"].get<double>(), 1e-5) << line;
  const auto drawn = json_of(at, "$L generate runs/lora --tokens 8 --json run.device=cpu");
  for (const char* line :
       {"$L generate model --adapter adapter", "$L generate adapter", "$L generate merged"})
    EXPECT_EQ(
        json_of(at, line + std::string(" --tokens 8 --json run.device=cpu data.kind=grammar"))["tokens"],
        drawn["tokens"])
        << line;
  expect_rows(at,
              {{"$L inspect runs/lora", 0, "an adapter of the model in"},
               {"$L inspect adapter", 0, "an adapter of the model in"},
               {"$L export runs/first x --merge", 2, "nothing to merge"},
               {"$L export runs/lora x --out y", 2, "not both"},
               {"$L eval runs/first --adapter adapter run.device=cpu", 0, "loss"},
               {"$L train model.from=model tune.method=lora tune.targets=qproj data.seq_len=16 run.name=x", 2,
                "q_proj"},
               {"$L train tune.rank=4 run.name=x --dry-run", 0, "tune.rank"}});
}

// Stopped and started again, also by other numbers of ranks, with a model that has moved in between.
TEST(LoraCommands, ResumeWithTheSameModelOnly) {
  base::TemporaryFolder folder;
  const std::string& at = folder.path();
  make_model(at);
  const auto whole = json_of(at,
                             "$L train model.from=model tune.method=lora optim.lr=0.02 optim.warmup=0 "
                             "run.name=whole run.steps=6" +
                                 kSmall);
  json_of(at, kLora + "run.steps=3 optim.decay_steps=6" + kSmall);
  expect_rows(at, {{"mv model gone; " + kLora + "run.steps=6 optim.decay_steps=6" + kSmall, 3, ""},
                   {"$L eval runs/lora run.device=cpu", 3, "LS0341"}});
  const auto rest = json_of(
      at, "mv gone model; " + kLora + "run.steps=6 optim.decay_steps=6 --nproc 2 parallel.zero=3" + kSmall);
  EXPECT_EQ(rest["params_hash"], whole["params_hash"]);
}

}  // namespace
}  // namespace lockstep::cli
