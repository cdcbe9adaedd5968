// eval, export, inspect and model.from, as a person uses them.
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

const char* const kTrain =
    "$L train run.device=cpu model.layers=1 model.hidden=32 data.seq_len=16 batch.global=8 batch.slices=8 "
    "run.steps=4 "
    "log.eval_every=0 --json 2>/dev/null";

nlohmann::json json_of(const std::string& folder, const std::string& line) {
  const Outcome outcome = run_shell(folder, line);
  EXPECT_EQ(outcome.code, 0) << line << "\n" << outcome.output;
  return nlohmann::json::parse(outcome.output, nullptr, false);
}

TEST(CheckpointCommands, EvalExportAndInspectAgree) {
  base::TemporaryFolder folder;
  const auto trained = json_of(folder.path(), kTrain);
  const auto inspected = json_of(folder.path(), "$L inspect runs/first --check --json");
  EXPECT_EQ(inspected["params_hash"], trained["params_hash"]);
  EXPECT_EQ(inspected["step"], 4);
  EXPECT_EQ(inspected["checked"], "all checksums and params_hash are correct");
  EXPECT_EQ(inspected["checkpoints"].size(), 1u);
  const auto ours = json_of(folder.path(), "$L eval runs/first run.device=cpu --json");
  EXPECT_NEAR(ours["loss"].get<double>(), trained["eval_loss"].get<double>(), 1e-6);
  EXPECT_NEAR(ours["perplexity"].get<double>(), std::exp(ours["loss"].get<double>()), 1e-9);
  // A plain folder knows nothing of the data; its weights are the same to the last bit.
  json_of(folder.path(), "$L export runs/first plain --json");
  const auto plain =
      json_of(folder.path(), "$L eval plain run.device=cpu data.seq_len=16 batch.slices=8 --json");
  EXPECT_EQ(plain["loss_hex"], ours["loss_hex"]);
  const auto tuned =
      json_of(folder.path(), std::string("$L train model.from=plain run.name=tuned run.device=cpu ") +
                                 "data.seq_len=16 batch.global=8 batch.slices=8 run.steps=2 " +
                                 "log.eval_every=0 --json 2>/dev/null");
  EXPECT_EQ(tuned["steps"], 2);
  expect_rows(folder.path(),
              {{"$L inspect plain", 0, "model without a manifest"},
               {"$L inspect runs/first", 0, "saved by 1 rank"},
               {"$L export runs/first plain", 2, "not an empty folder"},
               {"$L export runs/first", 2, "export needs two folders"},
               {"$L export runs/first x --dtype fp8", 2, "fp32, bf16 or fp16"},
               {"$L eval none", 3, "is not a folder"},
               {"$L eval plain data.kind=text data.path=plain/config.json data.seq_len=16", 2, "LS0206"},
               {"$L train model.from=plain model.layers=2 run.name=x", 2, "plain/config.json says 1"}});
}

// generate takes what eval, export and inspect take.
TEST(CheckpointCommands, GenerateTakesARunACheckpointOrAFolder) {
  base::TemporaryFolder folder;
  json_of(folder.path(), kTrain);
  json_of(folder.path(), "$L export runs/first plain --json");
  const auto run = json_of(folder.path(), "$L generate runs/first --tokens 5 --json run.device=cpu");
  for (const char* line : {"$L generate --run runs/first --tokens 5 --json", "$L generate --tokens 5 --json",
                           "$L generate runs/first/checkpoints/step-00000004 --tokens 5 --json",
                           "$L generate plain data.kind=grammar --tokens 5 --json",
                           "$L generate run.device=cpu --tokens 5 --json"}) {
    EXPECT_EQ(json_of(folder.path(), line)["text"], run["text"]) << line;
  }
  // A plain folder brings no tokenizer that is read here: numbers in, numbers out.
  const auto plain = json_of(folder.path(), "$L generate plain --prompt '3 4' --tokens 2 --json");
  EXPECT_EQ(plain["tokens"].size(), 4u);
  EXPECT_EQ(plain["text"].get<std::string>().substr(0, 4), "3 4 ");
  expect_rows(folder.path(), {{"$L generate plain --prompt dog", 2, "there is no tokenizer for this data"},
                              {"$L generate plain --prompt ' ' --tokens 2", 0, " "},
                              {"$L generate plain data.kind=text data.path=x", 2, "LS0127"}});
}

// In how many pieces training sums is nothing to those who read the weights.
TEST(CheckpointCommands, RunsInStrandsAreReadAsAnyOther) {
  base::TemporaryFolder folder;
  const auto trained =
      json_of(folder.path(), std::string(kTrain) + " batch.product_strands=2 batch.sequence_strands=4");
  json_of(folder.path(), "$L export runs/first plain --json");
  const auto inspected = json_of(folder.path(), "$L inspect runs/first --check --json");
  EXPECT_EQ(inspected["checked"], "all checksums and params_hash are correct");
  const auto ours = json_of(folder.path(), "$L eval runs/first run.device=cpu --json");
  EXPECT_NEAR(ours["loss"].get<double>(), trained["eval_loss"].get<double>(), 1e-6);
  const auto run =
      json_of(folder.path(), "$L generate runs/first --tokens 8 --json --temperature 0 run.device=cpu");
  const auto plain = json_of(
      folder.path(), "$L generate plain data.kind=grammar --tokens 8 --json --temperature 0 run.device=cpu");
  EXPECT_EQ(run["text"], plain["text"]);
}

// A text that was moved since is not needed to write more like it.
TEST(CheckpointCommands, GenerateNeedsNoData) {
  base::TemporaryFolder folder;
  std::string text;
  for (int k = 0; k < 200; ++k) text += "one line of a book\n";
  folder.write("book.txt", text);
  json_of(folder.path(), std::string(kTrain) + " data.kind=text data.path=book.txt");
  expect_rows(folder.path(), {{"rm book.txt; $L generate runs/first --prompt one --tokens 3", 0, "one"}});
}

// A file that is named for an evaluation is evaluated on, once, and nothing is said of training on it.
TEST(CheckpointCommands, EvalCountsAFileOnceAndNamesTheKeyThatWasSet) {
  base::TemporaryFolder folder;
  std::string text;
  for (int k = 0; k < 200; ++k) text += "one line of a book\n";
  folder.write("book.txt", text);
  folder.write("test/a.txt", text);
  folder.write("test/b.txt", text);
  folder.write("short.txt", "abc");
  json_of(folder.path(), std::string(kTrain) + " data.kind=text data.path=book.txt");
  const auto one = json_of(folder.path(), "$L eval runs/first data.path=book.txt --json");
  EXPECT_EQ(one["data"], "text book.txt: 3800 tokens, vocabulary 256");
  EXPECT_EQ(one["samples"], 3799 / 16);
  const auto two = json_of(folder.path(), "$L eval runs/first data.path=test --json");  // a folder too
  EXPECT_EQ(two["data"], "text test: 7600 tokens, vocabulary 256");
  const auto own = json_of(folder.path(), "$L eval runs/first --json");
  EXPECT_EQ(own["data"].get<std::string>().find("to train on"), std::string::npos) << own;
  expect_rows(folder.path(),
              {{"$L eval runs/first data.path=short.txt", 3, "short.txt (data.path)"},
               {"$L eval runs/first data.eval_path=short.txt", 3, "short.txt (data.eval_path)"},
               {"$L eval runs/first data.path=absent", 3, "absent (data.path)"},
               {"$L eval runs/first batch.global=6", 0, "loss"},
               {"$L export runs/first plain", 0, "tensors"},
               {"$L eval plain data.kind=text data.path=book.txt", 0, "loss"},
               {"$L eval plain data.kind=text data.path=book.txt batch.slices=3", 0, "loss"}});
}

// transformers would find another loss in these: nobody is told ours.
TEST(CheckpointCommands, AFolderThatContradictsItselfIsRefused) {
  base::TemporaryFolder folder;
  json_of(folder.path(), std::string(kTrain) + " model.tied=false");
  json_of(folder.path(), "$L export runs/first plain --json");
  expect_rows(folder.path(), {{"sed -i s/'.*tie_word_embeddings.*'/'\"tie_word_embeddings\": true,'/ "
                               "plain/config.json; $L eval plain",
                               3, "an lm_head.weight that differs from transformer.wte.weight"},
                              {"rm plain/config.json; $L eval plain", 3, "has weights but no config.json"},
                              {"$L train model.heads=4 model.kv_heads=2 run.name=x", 2,
                               "a gpt2 has keys and values for each"}});
}

TEST(CheckpointCommands, NothingInAFileReachesTheTerminalAsACommand) {
  base::TemporaryFolder folder;
  const std::string header = R"({"a\u001b[31m": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  folder.write("model.safetensors", file + header + "0000");
  const Outcome outcome = run_shell(folder.path(), "$L inspect .");
  EXPECT_EQ(outcome.output.find('\x1b'), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("\\u001B[31m"), std::string::npos) << outcome.output;
}

TEST(CheckpointCommands, InspectFindsTheFlippedBit) {
  base::TemporaryFolder folder;
  json_of(folder.path(), kTrain);
  const std::string name = "runs/first/checkpoints/step-00000004/optimizer-00001-of-00001.safetensors";
  std::string bytes = base::read_file(folder.path() + "/" + name);
  bytes[bytes.size() / 2] ^= 1;
  folder.write(name, bytes);
  expect_rows(folder.path(),
              {{"$L inspect runs/first --check", 3, "optimizer-00001-of-00001.safetensors is damaged"},
               {"$L eval runs/first", 3, "LS0305"}});
}

}  // namespace
}  // namespace lockstep::cli
