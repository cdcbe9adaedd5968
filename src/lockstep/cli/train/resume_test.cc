// Runs that are stopped, killed or short of disk, and what they go on from.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/train/testing.h"

namespace lockstep::cli {
namespace {

TEST(Train, EndsAtAStepBoundaryWhenInterrupted) {
  base::TemporaryFolder folder;
  for (const char* signal : {"INT", "TERM"}) {
    const std::string line =
        kTinyRun + "run.steps=1000000 run.name=" + signal + " & pid=$!; while ! grep -q first_step runs/" +
        signal + "/events.jsonl; do sleep 0.05; done 2>/dev/null; kill -" + signal + " $pid; wait $pid";
    const Outcome outcome = run_shell(folder.path(), line);
    EXPECT_EQ(outcome.code, 75) << outcome.output;
    EXPECT_NE(outcome.output.find("run the same command again"), std::string::npos) << outcome.output;
  }
}

TEST(Train, KilledAtAnyMomentTheRunGoesOnFromACheckpoint) {
  base::TemporaryFolder folder;
  const std::string train = kTinyRun + "run.steps=4000 checkpoint.every=100 run.name=k ";
  run_shell(folder.path(), train +
                               "& pid=$!; while ! ls runs/k/checkpoints/*/manifest.json; do sleep 0.01; done "
                               ">/dev/null 2>&1; kill -9 $pid; wait $pid");
  const Outcome outcome = run_shell(folder.path(), train + "--json");
  EXPECT_NE(outcome.output.find("resuming from step"), std::string::npos) << outcome.output;
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const Outcome whole =
      run_shell(folder.path(), kTinyRun + "run.steps=4000 run.name=whole --json 2>/dev/null");
  const auto hash = [](const std::string& text) {
    return nlohmann::json::parse(text.substr(text.find('{')))["params_hash"];
  };
  EXPECT_EQ(hash(outcome.output), hash(whole.output));
}

TEST(Train, ADamagedCheckpointIsNamedAndTheOneBeforeItTaken) {
  base::TemporaryFolder folder;
  const std::string train = kTinyRun + "run.steps=12 checkpoint.every=4 run.name=d --json ";
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
  const std::string train = kTinyRun + "run.steps=12 checkpoint.every=4 run.name=d ";
  const std::string newest = "runs/d/checkpoints/step-00000012/",
                    before = "runs/d/checkpoints/step-00000008/";
  const std::string keep = "rm -rf kept; cp -r runs/d kept; ";
  const std::string bring_back = "rm -rf runs/d; cp -r kept runs/d; ";
  expect_rows(
      folder.path(),
      {{train, 0, ""},
       {keep + "truncate -s 100 " + newest + "optimizer-*; " + train, 0,
        "it has 100 bytes, but the manifest says"},
       {bring_back + "rm " + newest + "model-*; " + train, 0,
        "using the previous one: " + before.substr(0, 32)},
       {bring_back + "truncate -s 100 " + newest + "manifest.json; " + train, 0, "manifest.json is not JSON"},
       {bring_back + "truncate -s 100 " + newest + "manifest.json; $L eval runs/d; ", 0,
        "using the previous"},
       {bring_back + "truncate -s 100 " + newest + "model-*; $L eval " + newest, 3,
        "the previous one is complete: " + before.substr(0, 32)},
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
  const std::string train = kTinyRun + "run.steps=12 checkpoint.every=4 run.name=d ";
  const std::string newest = "runs/d/checkpoints/step-00000012/";
  const std::string restore = "rm -rf runs/d; cp -r kept runs/d; ";
  const std::string flip = restore + "printf xxxxxxxxxxxxxxxx | dd of=" + newest +
                           "model-00001-of-00001.safetensors bs=1 seek=4000 conv=notrunc 2>/dev/null; ";
  // Nobody may read it; root could, unless that right is given up.
  const std::string lock = restore + "chmod 000 " + newest +
                           "model-*; test $(id -u) = 0 && "
                           "L=\"setpriv --bounding-set=-dac_override,-dac_read_search $L\"; ";
  const std::string taken = "using the previous one: runs/d/checkpoints/step-00000008";
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
                 {fault + train, 0, "resuming from step 8"},
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
  const std::string train = kTinyRun + "run.steps=12 checkpoint.every=4 run.name=d ";
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
        "metrics.jsonl cannot be read and truncated"},
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
       {cut + train, 0, "resuming from step 8"},
       {steps, 0, "12"},
       // Killed behind its last save, as it evaluated.
       {cut +
            "cp -r kept/checkpoints runs/d; sed -i '/finished/d' runs/d/events.jsonl; sed -i "
            "'/eval_loss/d' " +
            metrics + "; " + train,
        0, "done: 12 of 12"},
       {"cat runs/d/events.jsonl", 0, "12 steps done, params_hash"},
       {"test \"$(grep -o '\"eval_loss.*step\":12' " + metrics +
            " | cut -d, -f1)\" = \"$(grep -o "
            "'\"eval_loss.*step\":12' kept/metrics.jsonl | cut -d, -f1)\"",
        0, ""},
       {train, 0, "already done"},
       // Every checkpoint has a copy of the recipe.
       {cut + ": >runs/d/config.toml; " + train, 0,
        "config.toml is empty; restore it, or start over with --resume never [LS0105]; using the recipe of "
        "the "
        "newest checkpoint"},
       {cut + "truncate -s 1000 runs/d/config.toml; " + train, 0,
        "; using the recipe of the newest checkpoint"},
       {"cmp runs/d/config.toml kept/config.toml", 0, ""}});
}

// With the defaults: what a run that nobody asked to save leaves behind.
TEST(Train, SavesWithoutBeingAsked) {
  base::TemporaryFolder folder;
  expect_rows(folder.path(),
              {{kTinyRun + "run.steps=2", 0, "folder  runs/first, saved every 10 minutes and at the end"},
               {kTinyRun + "run.steps=30 run.name=nan optim.lr=1000 optim.weight_decay=10 "
                           "optim.schedule=constant optim.warmup=0",
                1, "was saved as the checkpoint of step"},
               {"$L inspect runs/nan --check", 0, "all checksums and params_hash are correct"},
               {kTinyRun + "run.steps=30 run.name=nan optim.lr=1000 optim.weight_decay=10 "
                           "optim.schedule=constant optim.warmup=0",
                1, "LS0601"},
               {kTinyRun + "run.steps=30 run.name=ranks optim.lr=1000 optim.weight_decay=10 "
                           "optim.schedule=constant optim.warmup=0 --nproc 2 parallel.zero=3",
                1, "was saved as the checkpoint of step"},
               {"$L inspect runs/ranks --check", 0, "all checksums and params_hash are correct"},
               // Killed at once, and with nothing of its own to say when to save.
               {"(" + kTinyRun +
                    "run.steps=1000000 run.name=timed checkpoint.minutes=0.001 >/dev/null & p=$!; until ls "
                    "runs/timed/checkpoints/*/manifest.json >/dev/null 2>&1; do sleep 0.1; kill -0 $p || "
                    "exit 5; done; "
                    "kill -9 $p; wait $p); $L inspect runs/timed",
                0, "complete"}});
}

// Two histories in one folder: what was saved with other keys is neither gone on from nor taken for the end.
TEST(Train, StartedOverItGoesOnFromItsOwnCheckpoints) {
  base::TemporaryFolder folder;
  const std::string train = kTinyRun + "run.steps=6 checkpoint.every=2 checkpoint.keep=9 run.name=r ";
  const std::string again = train + "optim.lr=0.5 ", drop = "rm -r runs/r/checkpoints/step-0000000";
  const std::string keep = "cp -r runs/r/checkpoints/step-00000006 kept; ";
  const std::string put_back = "cp -r kept/. runs/r/checkpoints/step-00000006; ";
  expect_rows(folder.path(),
              {{train, 0, "done: 6 of 6"},
               {keep + again, 2, "optim.lr: was"},
               {again + "--resume never", 0, "done: 6 of 6"},
               // As if stopped after 4 steps, with the end of the run before it still there.
               {drop + "6; " + put_back + again, 0, "step-00000006 belongs to another recipe and is skipped"},
               {again, 0, "already done"},
               {drop + "6 " + drop.substr(6) + "4 " + drop.substr(6) +
                    "2; mkdir runs/r/checkpoints/step-00000006; " + put_back + again,
                2, "contains only checkpoints of other recipes"},
               {again + "--resume runs/r", 0, "done: 6 of 6"}});
}

// Its config.toml lacks keys that were added since.
TEST(Train, ARunOfAnOlderVersionGoesOn) {
  base::TemporaryFolder folder;
  const std::string train = kTinyRun + "run.steps=4 checkpoint.every=2 run.name=old ";
  expect_rows(folder.path(), {{train, 0, "done: 4 of 4"},
                              {"rm -r runs/old/checkpoints/step-00000004; sed -i '/head_dim/d; /rope_type/d' "
                               "runs/old/config.toml; " +
                                   train,
                               0, "resuming from step 2"},
                              {train + "model.hidden=32", 2, "model.hidden: was 16, is 32"}});
}

// A save that fails in the middle of a run is told and tried again; the last one must succeed.
TEST(Train, AFullDiskEndsOnlyTheLastSave) {
  base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(), "ulimit -f 20; " + kTinyRun + "run.steps=9 checkpoint.every=4 run.name=full");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("warning: runs/full/checkpoints/step-00000004/model-"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("step 9/9"), std::string::npos) << outcome.output;
}

// Not even the lines of metrics end a run when nothing at all can be written any more.
TEST(Train, AFullDiskCostsNoStep) {
  base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(), "ulimit -f 20; " + kTinyRun + "run.steps=200 log.every=1 run.name=full");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.output.find("warning: runs/full/metrics.jsonl cannot be written"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("the checkpoint of step 200 was not saved"), std::string::npos)
      << outcome.output;
}

}  // namespace
}  // namespace lockstep::cli
