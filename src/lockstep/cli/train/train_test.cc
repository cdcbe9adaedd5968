// `lockstep train` and its neighbours as a stranger meets them: bad input, interruptions, running again.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

// A run of a fraction of a second.
const std::string kTiny =
    "$L train model.layers=1 model.hidden=16 model.heads=2 data.seq_len=8 batch.global=4 batch.slices=2 "
    "batch.strands=2 run.device=cpu log.eval_batches=1 ";

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> lines;
  for (const std::string& line : base::split_lines(base::read_file(path)))
    lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(Train, RefusesBadInput) {
  base::TemporaryFolder folder;
  folder.write("short.txt", "abc");
  folder.write("cut.bin", std::string(1027, 'x'));
  folder.write("odd.bin", std::string(1001, 'x'));
  folder.write("words.jsonl", "{\"text\": \"hello\"}\n{\"text\": 5}\n");
  folder.write("occupied", "a file where a folder should be");
  folder.write("bad.toml", "[model]\nlayers = \"four\"\n");
  const std::vector<Row> rows = {
      {kTiny + "optim.learning_rate=1", 2, "did you mean optim.lr?"},
      {"$L train bad.toml", 2, "model.layers"},
      {kTiny + "model.layers=-1", 2, "[LS0103]"},
      {kTiny + "model.hidden=0", 2, "[LS0103]"},
      {kTiny + "model.heads=3", 2, "does not divide model.hidden = 16"},
      {kTiny + "model.family=llama model.heads=4 model.kv_heads=3", 2, "model.kv_heads = 3 does not divide"},
      {kTiny + "model.family=llama model.head_dim=7", 2, "needs an even head width"},
      {kTiny + "model.head_dim=7", 2, "the heads of a gpt2 share model.hidden"},
      {kTiny + "model.family=llama model.rope_scaling=4 model.rope_type=yarn model.rope_theta=1", 2,
       "set it above 1"},
      {kTiny + "batch.slices=3", 2, "slices that do: 1, 2, 4"},
      {kTiny + "batch.slices=4 batch.strands=3", 2, "strands that do"},
      {kTiny + "batch.slices=auto batch.strands=3", 2, "strands that do: 1, 2, 4"},
      {kTiny + "batch.slices=auto batch.strands=auto --nproc 5", 2, "start at most 4"},
      {kTiny + "model.family=bert", 2, "gpt2"},
      {kTiny + "model.preset=7b", 2, "124m"},
      {kTiny + "memory.recompute=elbow", 2, "attention"},
      {kTiny + "model.context=4", 2, "longer than model.context"},
      {"$L train absent.toml", 2, "absent.toml"},
      {kTiny + "--profile 3:2", 2, "FIRST:LAST"},
      {kTiny + "--profile 1:2x", 2, "FIRST:LAST"},
      {kTiny + "run.steps=3 --profile 4:5", 2, "run.steps = 3"},
      {kTiny + "data.kind=text data.path=absent.txt", 3, "absent.txt"},
      {kTiny + "data.kind=text data.path=short.txt", 3, "short.txt"},
      {kTiny + "data.kind=tokens data.path=odd.bin", 3, "odd.bin"},
      {kTiny + "data.kind=tokens data.path=cut.bin model.vocab=64", 3, "cut.bin"},
      {kTiny + "data.kind=jsonl data.path=words.jsonl", 3, "words.jsonl"},
      {kTiny + "data.kind=text", 2, "data.path"},
      {kTiny + "model.vocab=64", 2, "model.vocab = 64 is smaller"},
      {kTiny + "run.device=tpu", 2, "run.device"},
      {"CUDA_VISIBLE_DEVICES= " + kTiny + "run.device=cuda", 2, "run.device=cpu"},
      {kTiny + "log.folder=occupied", 1, "occupied"},
      {kTiny + "memory.limit_gib=0.00001", 1, "remedies"},
      {kTiny + "--resume nowhere", 3, "nowhere"},
      {kTiny + "--nproc 4 batch.slices=2 batch.strands=2", 2, "[LS0154]"},
      {kTiny + "--nproc 2 --nproc 4 parallel.data=3", 2, "parallel.data = 3 needs 3 ranks, 4 started"},
      {kTiny + "--nproc 4 parallel.zero=3 parallel.shard=3", 2, "[LS0153]"},
      {kTiny + "--nproc 2 parallel.wire=bf16", 2, "[LS0155]"},
      {kTiny + "--nproc 2 parallel.engine=nccl", 2, "[LS0522]"},
      {"LOCKSTEP_STORE=127.0.0.1:1 " + kTiny, 2, "[LS0538]"},
      {kTiny + "parallel.data=2", 2, "needs 2 ranks, 1 started: add --nproc 2"},
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
      {kTiny + "run.steps=6 log.fingerprint=true checkpoint.every=4", 0, "done: 6 of 6 steps"},
      {kTiny + "run.steps=6 log.fingerprint=true checkpoint.every=4", 0, "already done"},
      {"test $(" + kTiny +
           "run.steps=6 log.fingerprint=true checkpoint.every=4 --json 2>/dev/null | "
           "grep -o '\"params_hash\":\"[0-9a-f]*'| cut -c16-) = $(grep -o '\"params_hash\": *\"[0-9a-f]*' "
           "runs/first/metrics.jsonl | tail -1 | grep -o '[0-9a-f]*$') && echo same bits",
       0, "same bits"},
      {kTiny + "run.steps=6 optim.lr=0.5", 2, "optim.lr: was 0.008, is 0.5"},
      {"$L generate --tokens 5 --json", 0, "\"tokens\":["},
      {"$L explain recipe runs/first/config.toml", 0, "runs/first/config.toml"},
      // Training from the resolved config repeats the run.
      {"$L train runs/first/config.toml run.name=again", 0, "done"},
      // As an earlier version left it, which did not have the key.
      {"sed -i /head_dim/d runs/first/config.toml; rm -r runs/first/checkpoints/step-00000006; " + kTiny +
           "run.steps=6 checkpoint.every=4 log.fingerprint=true",
       0, "going on from step 4"},
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
  const std::string train = kTiny + "run.steps=40 --json 2>/dev/null";
  const Outcome first = run_shell(folder.path(), train), again = run_shell(folder.path(), train);
  ASSERT_EQ(first.code, 0) << first.output;
  ASSERT_EQ(again.code, 0) << again.output;
  const auto told = nlohmann::json::parse(first.output), repeated = nlohmann::json::parse(again.output);
  for (const char* key : {"folder", "steps", "finished", "loss", "eval_loss", "params_hash"})
    EXPECT_EQ(told.at(key), repeated.value(key, nlohmann::json())) << key;
  // Where nothing was kept, nothing is made up.
  ASSERT_EQ(run_shell(folder.path(), "echo '{\"step\":40,\"loss\":\"nan\"}' > runs/first/metrics.jsonl").code,
            0);
  const Outcome without = run_shell(folder.path(), train);
  EXPECT_EQ(without.code, 0);
  EXPECT_FALSE(nlohmann::json::parse(without.output).contains("loss")) << without.output;
}

TEST(Train, EndsAtAStepBoundaryWhenInterrupted) {
  base::TemporaryFolder folder;
  for (const char* signal : {"INT", "TERM"}) {
    const std::string line =
        kTiny + "run.steps=1000000 run.name=" + signal + " & pid=$!; while ! grep -q first_step runs/" +
        signal + "/events.jsonl; do sleep 0.05; done 2>/dev/null; kill -" + signal + " $pid; wait $pid";
    const Outcome outcome = run_shell(folder.path(), line);
    EXPECT_EQ(outcome.code, 75) << outcome.output;
    EXPECT_NE(outcome.output.find("run the same command again"), std::string::npos) << outcome.output;
  }
}

TEST(Train, KilledAtAnyMomentTheRunGoesOnFromACheckpoint) {
  base::TemporaryFolder folder;
  const std::string train = kTiny + "run.steps=4000 checkpoint.every=100 run.name=k ";
  run_shell(folder.path(), train +
                               "& pid=$!; while ! ls runs/k/checkpoints/*/manifest.json; do sleep 0.01; done "
                               ">/dev/null 2>&1; kill -9 $pid; wait $pid");
  const Outcome outcome = run_shell(folder.path(), train + "--json");
  EXPECT_NE(outcome.output.find("going on from step"), std::string::npos) << outcome.output;
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const Outcome whole = run_shell(folder.path(), kTiny + "run.steps=4000 run.name=whole --json 2>/dev/null");
  const auto hash = [](const std::string& text) {
    return nlohmann::json::parse(text.substr(text.find('{')))["params_hash"];
  };
  EXPECT_EQ(hash(outcome.output), hash(whole.output));
}

TEST(Train, ADamagedCheckpointIsNamedAndTheOneBeforeItTaken) {
  base::TemporaryFolder folder;
  const std::string train = kTiny + "run.steps=12 checkpoint.every=4 run.name=d --json ";
  const Outcome whole = run_shell(folder.path(), train + "2>/dev/null");
  // The newest is gone, the next one has a flipped byte, the oldest two are kept by checkpoint.keep=2.
  const Outcome outcome = run_shell(
      folder.path(),
      "rm runs/d/checkpoints/step-00000012/manifest.json; f=$(ls runs/d/checkpoints/"
      "step-00000008/model-*); printf xxxxxxxxxxxxxxxx | dd of=$f bs=1 seek=4000 conv=notrunc 2>/dev/null; " +
          train);
  EXPECT_EQ(outcome.code, 3) << outcome.output;
  EXPECT_NE(outcome.output.find("step-00000008/model-00001-of-00001.safetensors"), std::string::npos)
      << outcome.output;
  EXPECT_EQ(whole.code, 0);
}

// Also one whose damage shows before it is read: nobody loses steps without a word.
TEST(Train, ACheckpointThatIsCutOffIsNamedAndTheOneBeforeItTaken) {
  base::TemporaryFolder folder;
  const std::string train = kTiny + "run.steps=12 checkpoint.every=4 run.name=d ";
  const std::string newest = "runs/d/checkpoints/step-00000012/",
                    before = "runs/d/checkpoints/step-00000008/";
  const std::string keep = "rm -rf kept; cp -r runs/d kept; ";
  const std::string bring_back = "rm -rf runs/d; cp -r kept runs/d; ";
  expect_rows(
      folder.path(),
      {{train, 0, ""},
       {keep + "truncate -s 100 " + newest + "optimizer-*; " + train, 0,
        "it has 100 bytes, the manifest says"},
       {bring_back + "rm " + newest + "model-*; " + train, 0,
        "taking the one before it: " + before.substr(0, 32)},
       {bring_back + "truncate -s 100 " + newest + "manifest.json; " + train, 0, "manifest.json is not JSON"},
       {bring_back + "truncate -s 100 " + newest + "manifest.json; $L eval runs/d; ", 0, "taking the one"},
       {bring_back + "truncate -s 100 " + newest + "model-*; $L eval " + newest, 3,
        "the one before it is complete: " + before.substr(0, 32)},
       {bring_back + "truncate -s 100 " + newest + "model-* " + before + "model-*; " + train, 3, "LS0328"},
       {train + "--resume never", 0, "done: 12 of 12"},
       // A run that has saved does not start over by itself, whatever has become of its manifests.
       {bring_back + "rm runs/d/checkpoints/*/manifest.json; " + train, 3, "LS0328"},
       {bring_back + "truncate -s 9 runs/d/checkpoints/*/manifest.json; " + train, 3, "LS0328"},
       {bring_back + "rm -r runs/d/checkpoints; " + train, 3, "LS0328"},
       {"test -s runs/d/metrics.jsonl && grep -c finished runs/d/events.jsonl", 0, "1"},
       // The first save of a run was killed while it wrote its manifest: nothing is lost by starting over.
       {bring_back + "rm -r " + before + "; truncate -s 100 " + newest +
            "manifest.json; rm runs/d/checkpoints/latest; "
            "sed -i /checkpoint_saved/d runs/d/events.jsonl; " +
            train,
        0, "done: 12 of 12"}});
}

// Damage that shows only when bytes are read: whoever reads a run takes the newest checkpoint that can be
// used.
TEST(Train, WhoeverReadsARunPassesADamagedCheckpointOver) {
  base::TemporaryFolder folder;
  const std::string train = kTiny + "run.steps=12 checkpoint.every=4 run.name=d ";
  const std::string newest = "runs/d/checkpoints/step-00000012/";
  const std::string restore = "rm -rf runs/d; cp -r kept runs/d; ";
  const std::string flip = restore + "printf xxxxxxxxxxxxxxxx | dd of=" + newest +
                           "model-00001-of-00001.safetensors bs=1 seek=4000 conv=notrunc 2>/dev/null; ";
  // Nobody may read it; root could, unless that right is given up.
  const std::string lock = restore + "chmod 000 " + newest +
                           "model-*; test $(id -u) = 0 && "
                           "L=\"setpriv --bounding-set=-dac_override,-dac_read_search $L\"; ";
  const std::string taken = "taking the one before it: runs/d/checkpoints/step-00000008";
  std::vector<Row> rows = {{train + "&& cp -r runs/d kept", 0, ""}};
  for (const std::string& fault : {flip, lock}) {
    rows.insert(rows.end(),
                {{fault + "$L generate --run runs/d --tokens 3", 0, taken},
                 {fault + "$L eval runs/d", 0, taken},
                 {fault + "rm -rf x; $L export runs/d x && $L eval x data.seq_len=8", 0, taken},
                 {fault + "$L eval " + newest, 3, "LS0305"},
                 {fault + "$L inspect runs/d --check", 3, "LS0305"},
                 {fault + "rm -rf runs/new; $L train model.from=runs/d run.steps=2 run.name=new " +
                      "data.seq_len=8 batch.global=4 batch.slices=2 batch.strands=2 run.device=cpu",
                  0, taken},
                 {fault + train, 0, "going on from step 8"},
                 {train, 0, "already done"}});
  }
  rows.push_back({restore + train, 0, "already done"});
  rows.push_back({flip + "rm -r runs/d/checkpoints/step-00000008; " + train, 3, "LS0328"});
  rows.push_back(
      {flip + "rm -r runs/d/checkpoints/step-00000008; rm -rf x; $L export runs/d x", 3, "LS0305"});
  rows.push_back({restore + "rm " + newest + "manifest.json; $L inspect runs/d --check", 3, "LS0329"});
  expect_rows(folder.path(), rows);
  EXPECT_EQ(run_shell(folder.path(), "ls -A x 2>/dev/null").output, "");  // no half of a model
}

// What is the user's is never written over because it could not be read.
TEST(Train, MetricsOfAnEarlierStartAreKept) {
  base::TemporaryFolder folder;
  const std::string train = kTiny + "run.steps=12 checkpoint.every=4 run.name=d ";
  const std::string metrics = "runs/d/metrics.jsonl";
  const std::string cut = "rm -rf runs/d; cp -r kept runs/d; rm -r runs/d/checkpoints/step-00000012; ";
  const std::string without_right =
      "test $(id -u) = 0 && "
      "L=\"setpriv --bounding-set=-dac_override,-dac_read_search $L\"; ";
  const std::string steps = "grep -c '\"loss_hex\"' " + metrics;
  expect_rows(
      folder.path(),
      {{train + "&& cp -r runs/d kept", 0, "saved every 4 steps and at the end"},
       {cut + "chmod 000 " + metrics + "; " + without_right + train, 1,
        "metrics.jsonl cannot be read and cut"},
       {"chmod 644 " + metrics + "; cmp " + metrics + " kept/metrics.jsonl", 0, ""},
       {"chmod 000 runs/d/record.json; " + without_right + train, 1, "record.json cannot be read"},
       {"cmp " + metrics + " kept/metrics.jsonl", 0, ""},
       {cut + "echo '{\"step\":null}' >>" + metrics + "; sed -i '2i [\"of mine\"]' " + metrics + "; " + train,
        0, "done: 12 of 12"},
       {"grep -c 'of mine' " + metrics, 0, "1"},
       {cut + "touch " + metrics + ".77.tmp runs/d/config.toml.8.tmp runs/d/mine.tmp; " + train +
            "; ls runs/d | grep tmp",
        0, "mine.tmp"},
       {"ls runs/d/*.*.tmp", 2, "cannot access"},
       // Lines that waited for a full disk went with the process.
       {cut + "sed -i '/\"step\":[789],/d; /\"step\":1[0-9],/d' " + metrics + "; " + train, 0,
        "metrics.jsonl lacks the lines of steps 7 to 8"},
       {"grep -c lines_missing runs/d/events.jsonl", 0, "1"},
       {cut + train, 0, "going on from step 8"},
       {steps, 0, "12"}});
}

// With the defaults: what a run that nobody asked to save leaves behind.
TEST(Train, SavesWithoutBeingAsked) {
  base::TemporaryFolder folder;
  expect_rows(folder.path(),
              {{kTiny + "run.steps=2", 0, "folder  runs/first, saved every 10 minutes and at the end"},
               {kTiny + "run.steps=30 run.name=nan optim.lr=1000 optim.weight_decay=10 "
                        "optim.schedule=constant optim.warmup=0",
                1, "is saved, as the checkpoint of step"},
               {"$L inspect runs/nan --check", 0, "every checksum is right, and so is params_hash"},
               {kTiny + "run.steps=30 run.name=nan optim.lr=1000 optim.weight_decay=10 "
                        "optim.schedule=constant optim.warmup=0",
                1, "LS0601"},
               {kTiny + "run.steps=30 run.name=ranks optim.lr=1000 optim.weight_decay=10 "
                        "optim.schedule=constant optim.warmup=0 --nproc 2 parallel.zero=3",
                1, "is saved, as the checkpoint of step"},
               {"$L inspect runs/ranks --check", 0, "every checksum is right, and so is params_hash"},
               // Killed at once, and with nothing of its own to say when to save.
               {"(" + kTiny +
                    "run.steps=1000000 run.name=timed checkpoint.minutes=0.001 >/dev/null & p=$!; until ls "
                    "runs/timed/checkpoints/*/manifest.json >/dev/null 2>&1; do sleep 0.1; kill -0 $p || "
                    "exit 5; done; "
                    "kill -9 $p; wait $p); $L inspect runs/timed",
                0, "complete"}});
}

// Two histories in one folder: what was saved with other keys is neither gone on from nor taken for the end.
TEST(Train, StartedOverItGoesOnFromItsOwnCheckpoints) {
  base::TemporaryFolder folder;
  const std::string train = kTiny + "run.steps=6 checkpoint.every=2 checkpoint.keep=9 run.name=r ";
  const std::string again = train + "optim.lr=0.5 ", drop = "rm -r runs/r/checkpoints/step-0000000";
  const std::string keep = "cp -r runs/r/checkpoints/step-00000006 kept; ";
  const std::string put_back = "cp -r kept/. runs/r/checkpoints/step-00000006; ";
  expect_rows(folder.path(),
              {{train, 0, "done: 6 of 6"},
               {keep + again, 2, "optim.lr: was"},
               {again + "--resume never", 0, "done: 6 of 6"},
               // As if stopped after 4 steps, with the end of the run before it still there.
               {drop + "6; " + put_back + again, 0, "step-00000006 is of another recipe and is passed over"},
               {again, 0, "already done"},
               {drop + "6 " + drop.substr(6) + "4 " + drop.substr(6) +
                    "2; mkdir runs/r/checkpoints/step-00000006; " + put_back + again,
                2, "holds only checkpoints of other recipes"},
               {again + "--resume runs/r", 0, "done: 6 of 6"}});
}

// Its config.toml lacks keys that were added since.
TEST(Train, ARunOfAnOlderVersionGoesOn) {
  base::TemporaryFolder folder;
  const std::string train = kTiny + "run.steps=4 checkpoint.every=2 run.name=old ";
  expect_rows(folder.path(), {{train, 0, "done: 4 of 4"},
                              {"rm -r runs/old/checkpoints/step-00000004; sed -i '/head_dim/d; /rope_type/d' "
                               "runs/old/config.toml; " +
                                   train,
                               0, "going on from step 2"},
                              {train + "model.hidden=32", 2, "model.hidden: was 16, is 32"}});
}

// A save that fails in the middle of a run is told and tried again; the last one must succeed.
TEST(Train, AFullDiskEndsOnlyTheLastSave) {
  base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(), "ulimit -f 20; " + kTiny + "run.steps=9 checkpoint.every=4 run.name=full");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("warning: runs/full/checkpoints/step-00000004/model-"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("step 9/9"), std::string::npos) << outcome.output;
}

// Not even the lines of metrics end a run when nothing at all can be written any more.
TEST(Train, AFullDiskCostsNoStep) {
  base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(), "ulimit -f 20; " + kTiny + "run.steps=200 log.every=1 run.name=full");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.output.find("warning: runs/full/metrics.jsonl cannot be written"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("the checkpoint of step 200 was not saved"), std::string::npos)
      << outcome.output;
}

TEST(Train, ARunFolderBelongsToOneProcess) {
  base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(), kTiny +
                                   "run.steps=1000000 >/dev/null 2>&1 & pid=$!; while ! test -s "
                                   "runs/first/events.jsonl; do sleep 0.05; "
                                   "done; " +
                                   kTiny + "run.steps=1000000; code=$?; kill -9 $pid; exit $code");
  EXPECT_EQ(outcome.code, 2) << outcome.output;
  EXPECT_NE(outcome.output.find("is in use by"), std::string::npos) << outcome.output;
}

// Ranks that were started by hand, each with its own idea of who it is.
TEST(Train, RanksOfAnotherLauncherMeetOrAreToldWhyNot) {
  base::TemporaryFolder folder;
  const std::string meet =
      "export MASTER_ADDR=127.0.0.1 MASTER_PORT=$$ LOCKSTEP_SECRET=a-secret-for-this-one-test; ";
  const auto rank = [](const std::string& variables) {
    return variables + " " + kTiny + "run.steps=3 run.name=hand; echo code $?";
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
       "two processes say that they are rank 1", 3},
      // The second is refused by the first, which would wait for it.
      {"WORLD_SIZE=2 RANK=0 timeout -s KILL 8", "WORLD_SIZE=2 RANK=1 LOCKSTEP_SECRET=another-secret-is-this",
       "", "do not trust each other", 1},
  };
  for (const Case& c : cases) {
    std::string line = meet + "(" + rank(c.first) + ") & (" + rank(c.second) + ") & ";
    if (!c.third.empty()) line += "(" + rank(c.third) + ") & ";
    line += "wait";
    const Outcome outcome = run_shell(folder.path(), line);
    EXPECT_EQ(count(outcome.output, c.says), c.times) << c.second << "\n" << outcome.output;
    std::filesystem::remove_all(folder.path() + "/runs");
  }
}

TEST(Train, TimingAddsUpToTheEndOfTheFirstStep) {
  base::TemporaryFolder folder;
  const Outcome outcome = run_shell(folder.path(), kTiny + "run.steps=2 --run r --timing");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  double sum = 0, total = 0;
  int laps = 0;
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line) && total == 0;) {
    std::istringstream cells(line);
    std::vector<std::string> words{std::istream_iterator<std::string>(cells), {}};
    if (words.size() < 4 || words.back() != "%") continue;  // "open the device  12.3  4.5 %"
    const double ms = std::stod(words[words.size() - 3]);
    const bool last = line.find("to the end of the first step") != std::string::npos;
    (last ? total : sum) += ms;
    laps += last ? 0 : 1;
  }
  EXPECT_GE(laps, 10) << outcome.output;
  EXPECT_GT(total, 0);
  EXPECT_NEAR(sum, total, 0.1 * laps);  // each is rounded
}

TEST(Train, ProfilesTheStepsAskedFor) {
  base::TemporaryFolder folder;
  expect_rows(folder.path(), {{kTiny + "run.steps=5 --run r --profile 2:3", 0, "2 steps, "},
                              {kTiny + "run.steps=5 --run s --profile 5:9", 0, "1 step, "}});
  // A run that goes on inside the steps asked for profiles those that are left, and says when none are.
  expect_rows(folder.path(), {{kTiny + "run.steps=9 --run t --resume s --profile 4:7", 0, "2 steps, "},
                              {kTiny + "run.steps=9 --run u --resume s --profile 2:3", 0,
                               "nothing was profiled: steps 2 to 3"}});
  const auto trace = nlohmann::json::parse(base::read_file(folder.path() + "/r/trace/profile.json"));
  int updates = 0;
  std::set<int> steps;
  for (const auto& event : trace.at("traceEvents")) {
    EXPECT_GE(event.value("dur", 0.0), 0);
    if (!event.at("name").get<std::string>().starts_with("update")) continue;
    ++updates;
    steps.insert(event.at("args").at("step").get<int>());
  }
  EXPECT_EQ(updates, 2 * 3);  // two steps, three blocks
  EXPECT_EQ(steps, (std::set<int>{2, 3}));
}

TEST(Train, ProfilesEveryRankIntoOneTrace) {
  base::TemporaryFolder folder;
  expect_rows(folder.path(),
              {{kTiny + "run.steps=3 --run r --profile 2 parallel.pipeline=2 batch.slices=2 --nproc 2", 0,
                "1 step, "}});
  const auto trace = nlohmann::json::parse(base::read_file(folder.path() + "/r/trace/profile.json"));
  std::map<int, std::set<std::string>> names;
  for (const auto& event : trace.at("traceEvents")) {
    const std::string name = event.at("name").get<std::string>();
    names[event.at("pid").get<int>()].insert(name.substr(0, name.find(' ')));
    if (event.value("ph", "") != "X") continue;
    EXPECT_GE(event.at("ts").get<double>(), 0);
    EXPECT_LT(event.at("ts").get<double>(), 60e6);  // one clock for both
  }
  ASSERT_EQ(names.size(), 2u);
  for (const auto& [rank, of_rank] : names) {
    for (const char* op : {"forward", "backward_weight", "send", "recv", "update"})
      EXPECT_TRUE(of_rank.contains(op)) << "rank " << rank << " " << op;
  }
}

TEST(Train, PrintsNoControlCharactersIntoAPipe) {
  base::TemporaryFolder folder;
  const Outcome outcome = run_shell(folder.path(), kTiny + "run.steps=30");
  for (const char c : outcome.output)
    EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= ' ') << static_cast<int>(c);
}

TEST(Explain, ProgramAndMemory) {
  base::TemporaryFolder folder;
  const std::vector<Row> rows = {
      {"$L explain program", 0, "backward_input b4.down s0"},
      {"$L explain program memory.recompute=full --all", 0, "recompute b1.qkv s3"},
      {"$L explain program --json | head -c 12", 0, "{\"buffers\":"},
      {"$L explain memory model.layers=2", 0, "activations: layer 1"},
      // What a step takes can be said before the data is there, where the recipe says how many tokens it
      // knows.
      {"$L explain memory model.layers=2 data.kind=tokens data.path=absent model.vocab=50257", 0, "layer 1"},
      {"$L explain program model.layers=2 data.kind=text data.path=absent", 0, "update"},
      {"$L explain memory data.kind=tokens data.path=absent", 3, "[LS0202]"},
      {"$L explain memory --json | head -c 9", 0, "{\"alive\":"},
      // Ranks that do not exist: the list of one of them, and what each would hold.
      {"$L explain program model.layers=1 parallel.zero=3 --nproc 4 --rank 1", 0,
       "rank 1 of 4, parallel.zero=3; slices 1, 5 of 8"},
      {"$L explain program model.layers=1 parallel.zero=3 --nproc 4", 0, "gather b1 s0 among shard ranks"},
      {"$L explain program model.layers=1 parallel.zero=3 --nproc 4", 0, "release b1 s0"},
      {"$L explain program parallel.pipeline=2 --nproc 4", 0, "the 4 ranks have 2 different lists"},
      {"$L explain memory parallel.auto=true --nproc 2 2>&1", 0, "chosen"},
      {"$L explain program model.layers=1 parallel.zero=3 --nproc 4 | grep 'forward b0.embed s0'", 0,
       "waits #3"},
      {"$L explain program model.layers=1 --nproc 2 | grep 'reduce among replicas'", 0, "b2 b1 b0"},
      {"$L explain program model.layers=1 parallel.zero=3 parallel.shard=2 --nproc 4 --rank 3", 0,
       "rank 1 of 2 in copy 1 of 2"},
      {"$L explain memory model.layers=1 parallel.zero=3 --nproc 3", 0, "ranks"},
      {"$L explain program --nproc 4 --rank 4", 2, "--nproc 4 has the ranks 0 to 3"},
      {"$L explain program --nproc 9", 2, "cannot be shared by 9 data ranks"},
      {"$L explain memory --nproc 0", 2, "--nproc 0"},
      // What is timed is one rank, whatever the recipe is for.
      {"$L tune model.layers=1 model.hidden=16 batch.global=4 data.seq_len=8 parallel.data=2 parallel.zero=3 "
       "--steps 1",
       0, "timed on one rank"},
  };
  expect_rows(folder.path(), rows);
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
    const bool own = tuned.output.find("the recipe's own is the fastest") != std::string::npos;
    EXPECT_EQ(pasted == 0, own) << tuned.output;
    if (!own) EXPECT_NE(tuned.output.find(" bits"), std::string::npos) << tuned.output;
    std::filesystem::remove_all(folder.path() + "/out1");
    std::filesystem::remove_all(folder.path() + "/out2");
  }
}

TEST(Train, QuietSaysNothingAndADryRunDoesNothing) {
  base::TemporaryFolder folder;
  const Outcome quiet = run_shell(folder.path(), kTiny + "run.steps=3 optim.warmup=0 --quiet");
  EXPECT_EQ(quiet.code, 0);
  EXPECT_EQ(quiet.output, "");
  const std::vector<Row> rows = {
      {kTiny + "run.steps=3 run.name=dry --dry-run", 0, "would begin at step 1"},
      {kTiny + "run.steps=3 run.name=dry --dry-run --nproc 2", 0, "ranks   2, none was started"},
      {kTiny + "run.steps=3 run.name=dry --dry-run --nproc 4", 2, "[LS0154]"},
      {kTiny + "run.steps=3 run.name=dry --dry-run --json 2>/dev/null", 0, "\"first_step\":0"},
      {kTiny + "run.steps=3 run.name=dry --dry-run memory.limit_gib=0.00001", 1, "[LS0420]"},
      {kTiny + "run.steps=3 optim.warmup=0 --dry-run", 0, "already done"},
      {kTiny + "run.steps=3 optim.warmup=0 optim.lr=0.5 --dry-run", 2, "optim.lr"},
  };
  expect_rows(folder.path(), rows);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/runs/dry"));
}

// The summary's loss is a mean, the status line's the last step's: both say so.
TEST(Train, LossesAreLabelled) {
  base::TemporaryFolder folder;
  const Outcome outcome = run_shell(folder.path(), kTiny + "run.steps=20 log.every=1 --json");
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
  EXPECT_EQ(outcome.output.find("ETA 0"), std::string::npos) << outcome.output;
}

// What is measured for the profile's table is no memory of the run.
TEST(Train, AProfileLeavesTheMemoryFigureAlone) {
  base::TemporaryFolder folder;
  ASSERT_EQ(run_shell(folder.path(), kTiny + "run.steps=6 log.every=1 --profile 2:3").code, 0);
  double first = 0;
  for (const nlohmann::json& line : lines_of(folder.path() + "/runs/first/metrics.jsonl")) {
    if (!line.contains("mem_gib")) continue;
    if (first == 0) first = line["mem_gib"].get<double>();
    EXPECT_EQ(line["mem_gib"].get<double>(), first) << line;
  }
  EXPECT_GT(first, 0);
}

}  // namespace
}  // namespace lockstep::cli
