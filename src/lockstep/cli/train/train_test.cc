// `lockstep train` as a newcomer sees it: bad input, its folder, its lines.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/train/testing.h"

namespace lockstep::cli {
namespace {

TEST(Train, RefusesBadInput) {
  base::TemporaryFolder folder;
  folder.write("short.txt", "abc");
  folder.write("cut.bin", std::string(1027, 'x'));
  folder.write("odd.bin", std::string(1001, 'x'));
  folder.write("words.jsonl", "{\"text\": \"hello\"}\n{\"text\": 5}\n");
  folder.write("occupied", "a file where a folder should be");
  folder.write("bad.toml", "[model]\nlayers = \"four\"\n");
  const std::vector<Row> rows = {
      {kTinyRun + "optim.learning_rate=1", 2, "did you mean optim.lr?"},
      {"$L train bad.toml", 2, "model.layers"},
      {kTinyRun + "model.layers=-1", 2, "[LS0103]"},
      {kTinyRun + "model.hidden=0", 2, "[LS0103]"},
      {kTinyRun + "model.heads=3", 2, "does not divide model.hidden = 16"},
      {kTinyRun + "model.family=llama model.heads=4 model.kv_heads=3", 2,
       "model.kv_heads = 3 does not divide"},
      {kTinyRun + "model.family=llama model.head_dim=7", 2, "needs an even head width"},
      {kTinyRun + "model.head_dim=7", 2, "the heads of a gpt2 divide model.hidden"},
      {kTinyRun + "model.family=llama model.rope_scaling=4 model.rope_type=yarn model.rope_theta=1", 2,
       "set it above 1"},
      {kTinyRun + "batch.slices=3", 2, "choose one of 1, 2, 4"},
      {kTinyRun + "batch.slices=4 batch.strands=3", 2, "choose one of"},
      {kTinyRun + "batch.slices=auto batch.strands=3", 2, "choose one of 1, 2, 4"},
      {kTinyRun + "batch.slices=auto batch.strands=auto --nproc 5", 2, "start at most 4"},
      {kTinyRun + "model.family=bert", 2, "gpt2"},
      {kTinyRun + "model.preset=7b", 2, "124m"},
      {kTinyRun + "memory.recompute=elbow", 2, "attention"},
      {kTinyRun + "model.context=4", 2, "longer than model.context"},
      {"$L train absent.toml", 2, "absent.toml"},
      {kTinyRun + "--profile 3:2", 2, "FIRST:LAST"},
      {kTinyRun + "--profile 1:2x", 2, "FIRST:LAST"},
      {kTinyRun + "run.steps=3 --profile 4:5", 2, "run.steps = 3"},
      {kTinyRun + "data.kind=text data.path=absent.txt", 3, "absent.txt"},
      {kTinyRun + "data.kind=text data.path=short.txt", 3, "short.txt"},
      {kTinyRun + "data.kind=tokens data.path=odd.bin", 3, "odd.bin"},
      {kTinyRun + "data.kind=tokens data.path=cut.bin model.vocab=64", 3, "cut.bin"},
      {kTinyRun + "data.kind=jsonl data.path=words.jsonl", 3, "words.jsonl"},
      {kTinyRun + "data.kind=text", 2, "data.path"},
      {kTinyRun + "model.vocab=64", 2, "model.vocab = 64 is smaller"},
      {kTinyRun + "run.device=tpu", 2, "run.device"},
      {"CUDA_VISIBLE_DEVICES= " + kTinyRun + "run.device=cuda", 2, "run.device=cpu"},
      {kTinyRun + "log.folder=occupied", 2,
       "cannot be created: \"occupied\" is no folder; choose another place with --run or log.folder"},
      {kTinyRun + "--run occupied", 2, "exists and is no folder"},
      {kTinyRun + "--run occupied --nproc 2", 2, "[LS0132]"},
      {kTinyRun + "memory.limit_gib=0.00001", 1, "try a smaller model"},
      {kTinyRun + "--resume nowhere", 3, "nowhere"},
      {kTinyRun + "--nproc 4 batch.slices=2 batch.strands=2", 2, "[LS0154]"},
      {kTinyRun + "--nproc 2 --nproc 4 parallel.data=3", 2, "parallel.data = 3 needs 3 ranks, but 4 started"},
      {kTinyRun + "--nproc 4 parallel.zero=3 parallel.shard=3", 2, "[LS0153]"},
      {kTinyRun + "--nproc 2 parallel.wire=bf16", 2, "[LS0155]"},
      {kTinyRun + "--nproc 2 parallel.engine=nccl", 2, "[LS0522]"},
      {"LOCKSTEP_STORE=127.0.0.1:1 " + kTinyRun, 2, "[LS0538]"},
      {kTinyRun + "parallel.data=2", 2, "needs 2 ranks, but 1 started: add --nproc 2"},
      {"$L generate --run nowhere", 2, "nowhere"},
      {"$L generate nowhere", 2, "\"nowhere\" is not a folder"},
      {"$L generate here --run there", 2, "one folder, not both"},
      {"$L generate --temperature hot", 2, "--temperature"},
      {"$L explain program bad.toml", 2, "model.layers"},
      {"$L tune --steps 0 batch.global=4 batch.slices=1 batch.strands=1", 2, "--steps"},
  };
  expect_rows(folder.path(), rows);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/runs")) << "a refused run left something behind";
}

TEST(Train, WritesItsFolderAndGoesOn) {
  base::TemporaryFolder folder;
  const std::string run = folder.path() + "/runs/first";
  const std::vector<Row> rows = {
      {kTinyRun + "run.steps=6 log.fingerprint=true checkpoint.every=4", 0, "done: 6 of 6 steps"},
      {kTinyRun + "run.steps=6 log.fingerprint=true checkpoint.every=4", 0, "already done"},
      {"test $(" + kTinyRun +
           "run.steps=6 log.fingerprint=true checkpoint.every=4 --json 2>/dev/null | "
           "grep -o '\"params_hash\":\"[0-9a-f]*'| cut -c16-) = $(grep -o '\"params_hash\": *\"[0-9a-f]*' "
           "runs/first/metrics.jsonl | tail -1 | grep -o '[0-9a-f]*$') && echo same bits",
       0, "same bits"},
      {kTinyRun + "run.steps=6 optim.lr=0.5", 2, "optim.lr: was 0.008, is 0.5"},
      {"$L generate --tokens 5 --json", 0, "\"tokens\":["},
      {"$L explain recipe runs/first/config.toml", 0, "runs/first/config.toml"},
      // Training from the resolved config repeats the run.
      {"$L train runs/first/config.toml run.name=again", 0, "done"},
      // As an earlier version left it, which did not have the key.
      {"sed -i /head_dim/d runs/first/config.toml; rm -r runs/first/checkpoints/step-00000006; " + kTinyRun +
           "run.steps=6 checkpoint.every=4 log.fingerprint=true",
       0, "resuming from step 4"},
  };
  expect_rows(folder.path(), rows);
  const std::vector<nlohmann::json> metrics = lines_of(run + "/metrics.jsonl"),
                                    again = lines_of(folder.path() + "/runs/again/metrics.jsonl");
  std::vector<int64_t> steps;
  for (const nlohmann::json& line : metrics) {
    if (!line.contains("loss")) continue;
    steps.push_back(line["step"]);
    for (const char* key : {"loss_hex", "lr", "grad_norm", "tokens", "tokens_per_s", "step_ms",
                            "data_wait_ms", "mfu", "mem_gib", "time", "params_hash"}) {
      EXPECT_TRUE(line.contains(key)) << key;
    }
    EXPECT_EQ(std::strtod(line["loss_hex"].get<std::string>().c_str(), nullptr), line["loss"].get<double>());
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  for (size_t n = 0; n < again.size() && n < metrics.size(); ++n) {
    EXPECT_EQ(metrics[n].value("params_hash", ""), again[n].value("params_hash", "")) << n;
  }
  EXPECT_EQ(lines_of(run + "/events.jsonl").back()["event"], "finished");
  EXPECT_TRUE(nlohmann::json::parse(base::read_file(run + "/record.json")).contains("instruction_set"));
}

TEST(Train, ARunThatIsDoneSaysAgainHowItEnded) {
  base::TemporaryFolder folder;
  const std::string train = kTinyRun + "run.steps=40 --json 2>/dev/null";
  const Outcome first = run_shell(folder.path(), train), again = run_shell(folder.path(), train);
  ASSERT_EQ(first.code, 0) << first.output;
  ASSERT_EQ(again.code, 0) << again.output;
  const auto told = nlohmann::json::parse(first.output), repeated = nlohmann::json::parse(again.output);
  for (const char* key : {"folder", "steps", "finished", "loss", "eval_loss", "params_hash"})
    EXPECT_EQ(told.at(key), repeated.value(key, nlohmann::json())) << key;
  // The event "finished" has it too; where nothing was kept, nothing is made up.
  const auto again_after = [&](const std::string& change) {
    const Outcome outcome = run_shell(folder.path(), change + " && " + train);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    return nlohmann::json::parse(outcome.output, nullptr, false);
  };
  const std::string without_metrics = "echo '{\"step\":40,\"loss\":\"nan\"}' > runs/first/metrics.jsonl";
  EXPECT_EQ(again_after(without_metrics).value("loss", nlohmann::json()), told.at("loss"));
  EXPECT_FALSE(again_after(": > runs/first/events.jsonl").contains("loss"));
}

TEST(Train, ARunFolderBelongsToOneProcess) {
  base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(), kTinyRun +
                                   "run.steps=1000000 >/dev/null 2>&1 & pid=$!; while ! test -s "
                                   "runs/first/events.jsonl; do sleep 0.05; "
                                   "done; " +
                                   kTinyRun + "run.steps=1000000; code=$?; kill -9 $pid; exit $code");
  EXPECT_EQ(outcome.code, 2) << outcome.output;
  EXPECT_NE(outcome.output.find("is in use by"), std::string::npos) << outcome.output;
}

// Ranks that were started by hand, each with its own idea of who it is.
TEST(Train, RanksOfAnotherLauncherMeetOrAreToldWhyNot) {
  base::TemporaryFolder folder;
  const std::string rendezvous =
      "export MASTER_ADDR=127.0.0.1 MASTER_PORT=$$ LOCKSTEP_SECRET=a-secret-for-this-one-test; ";
  const auto rank = [](const std::string& variables) {
    return variables + " " + kTinyRun + "run.steps=3 run.name=hand; echo code $?";
  };
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  struct Case {
    std::string first, second, third, says;
    int times;
  };
  const Case cases[] = {
      {"WORLD_SIZE=2 RANK=0", "WORLD_SIZE=2 RANK=1", "", "code 0", 2},
      {"WORLD_SIZE=3 RANK=0", "WORLD_SIZE=3 RANK=1", "WORLD_SIZE=3 RANK=1", "code 2", 3},
      {"WORLD_SIZE=3 RANK=0", "WORLD_SIZE=3 RANK=1", "WORLD_SIZE=3 RANK=1",
       "two processes claim to be rank 1", 3},
      // The second is refused by the first, which would wait for it.
      {"WORLD_SIZE=2 RANK=0 timeout -s KILL 8", "WORLD_SIZE=2 RANK=1 LOCKSTEP_SECRET=another-secret-is-this",
       "", "authentication failed", 1},
  };
  for (const Case& c : cases) {
    std::string line = rendezvous + "(" + rank(c.first) + ") & (" + rank(c.second) + ") & ";
    if (!c.third.empty()) line += "(" + rank(c.third) + ") & ";
    line += "wait";
    const Outcome outcome = run_shell(folder.path(), line);
    EXPECT_EQ(count(outcome.output, c.says), c.times) << c.second << "\n" << outcome.output;
    std::filesystem::remove_all(folder.path() + "/runs");
  }
}

TEST(Train, PrintsNoControlCharactersIntoAPipe) {
  base::TemporaryFolder folder;
  const Outcome outcome = run_shell(folder.path(), kTinyRun + "run.steps=30");
  for (const char c : outcome.output)
    EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= ' ') << static_cast<int>(c);
}

// The line that tune prints trains, whatever was given to it, and says what it changes.
TEST(Train, TunesAdviceCanBePasted) {
  base::TemporaryFolder folder;
  folder.write("it's mine.toml",
               "[model]\nlayers = 1\nhidden = 16\nheads = 2\n[data]\nseq_len = 8\n[run]\nsteps = 2\n"
               "device = \"cpu\"\n[batch]\nglobal = 8\nslices = 8\nstrands = 8\n[log]\neval_every = 0\n");
  for (const char* before : {"true", "mkdir -p runs/first"}) {  // a folder of that name is another run's
    const Outcome tuned = run_shell(
        folder.path(), std::string(before) + "; $L tune \"it's mine.toml\" optim.lr=0.002 --steps 1");
    ASSERT_EQ(tuned.code, 0) << tuned.output;
    size_t pasted = 0;
    for (const std::string& line : base::split_lines(tuned.output)) {
      if (!line.starts_with("  lockstep train")) continue;
      const Outcome trained =
          run_shell(folder.path(), "$L " + line.substr(std::string("  lockstep ").size()) +
                                       fmt::format(" log.folder=out{}", ++pasted));
      EXPECT_EQ(trained.code, 0) << line << "\n" << trained.output;
    }
    const bool own = tuned.output.find("the recipe's own setting is the fastest") != std::string::npos;
    EXPECT_EQ(pasted == 0, own) << tuned.output;
    EXPECT_TRUE(own || tuned.output.find(" bits") != std::string::npos) << tuned.output;
    std::filesystem::remove_all(folder.path() + "/out1");
    std::filesystem::remove_all(folder.path() + "/out2");
  }
}

TEST(Train, QuietSaysNothingAndADryRunDoesNothing) {
  base::TemporaryFolder folder;
  const Outcome quiet = run_shell(folder.path(), kTinyRun + "run.steps=3 optim.warmup=0 --quiet");
  EXPECT_EQ(quiet.code, 0);
  EXPECT_EQ(quiet.output, "");
  const std::vector<Row> rows = {
      {kTinyRun + "run.steps=3 run.name=dry --dry-run", 0, "would start at step 1"},
      {kTinyRun + "run.steps=3 run.name=dry --dry-run --nproc 2", 0, "ranks   2, none was started"},
      {kTinyRun + "run.steps=3 run.name=dry --dry-run --nproc 4", 2, "[LS0154]"},
      {kTinyRun + "run.steps=3 run.name=dry --dry-run --json 2>/dev/null", 0, "\"first_step\":0"},
      {kTinyRun + "run.steps=3 run.name=dry --dry-run memory.limit_gib=0.00001", 1, "[LS0420]"},
      {kTinyRun + "run.steps=3 optim.warmup=0 --dry-run", 0, "already done"},
      {kTinyRun + "run.steps=3 optim.warmup=0 optim.lr=0.5 --dry-run", 2, "optim.lr"},
  };
  expect_rows(folder.path(), rows);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/runs/dry"));
}

// The summary's loss is a mean, the status line's the last step's: both say so.
TEST(Train, LossesAreLabelled) {
  base::TemporaryFolder folder;
  const Outcome outcome = run_shell(folder.path(), kTinyRun + "run.steps=20 log.every=1 --json");
  EXPECT_NE(outcome.output.find("in the last step, "), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("on average over the last 2,"), std::string::npos) << outcome.output;
  const nlohmann::json summary =
      nlohmann::json::parse(base::split_lines(outcome.output).back(), nullptr, false);
  const auto lines = lines_of(folder.path() + "/runs/first/metrics.jsonl");
  std::optional<double> last;
  for (const nlohmann::json& line : lines) {
    if (line.contains("loss")) last = line["loss"].get<double>();
  }
  EXPECT_EQ(summary["last_loss"].get<double>(), *last);
  const Outcome again = run_shell(folder.path(), kTinyRun + "run.steps=20 log.every=1 --json 2>/dev/null");
  const nlohmann::json done = nlohmann::json::parse(again.output, nullptr, false);
  for (const char* key : {"loss", "last_loss", "params_hash"}) EXPECT_EQ(done[key], summary[key]) << key;
  // Also where the last step is not a logged one.
  const std::string sparse = kTinyRun + "run.steps=11 log.every=4 run.name=sparse --json 2>/dev/null";
  const std::string first = run_shell(folder.path(), sparse).output;
  const nlohmann::json of_run = nlohmann::json::parse(first, nullptr, false),
                       of_done =
                           nlohmann::json::parse(run_shell(folder.path(), sparse).output, nullptr, false);
  for (const char* key : {"loss", "last_loss", "eval_loss", "params_hash"}) {
    ASSERT_TRUE(of_run.contains(key)) << first;
    EXPECT_EQ(of_done[key], of_run[key]) << key;
  }
  EXPECT_EQ(outcome.output.find("ETA 0"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace lockstep::cli
