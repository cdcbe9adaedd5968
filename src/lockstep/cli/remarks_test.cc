// Nothing is ignored in silence: what a run does not use or does otherwise than one may think is said.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

// A run of a fraction of a second, from the built-in recipe.
const std::string kSmall =
    "$L train model.layers=1 model.hidden=16 model.heads=2 data.seq_len=8 batch.global=4 batch.slices=2 "
    "run.device=cpu log.eval_batches=1 optim.warmup=1 ";
const std::string kTiny = kSmall + "run.steps=2 --resume never ";

std::vector<nlohmann::json> steps_of(const std::string& path) {
  std::vector<nlohmann::json> lines;
  for (const std::string& line : base::split_lines(base::read_file(path))) {
    nlohmann::json parsed = nlohmann::json::parse(line);
    if (parsed.contains("loss")) lines.push_back(std::move(parsed));
  }
  return lines;
}

TEST(Remarks, KeysWithoutEffectAreNamed) {
  base::TemporaryFolder folder;
  folder.write("a.txt", std::string(400, 'x'));
  folder.write("m.toml", "[optim]\nmomentum = 0.5\n");
  expect_rows(
      folder.path(),
      {
          {kTiny + "optim.momentum=0.5", 0,
           "warning: optim.momentum = 0.5 (command line) has no effect: it applies to optim.name = sgd"},
          {"$L train m.toml" + kTiny.substr(8), 0, "optim.momentum = 0.5 (m.toml:2) has no effect"},
          {kTiny + "data.eval_path=a.txt", 0, "data.eval_path = \"a.txt\" (command line) has no effect"},
          {kTiny + "data.path=a.txt data.field=body", 0, "data.field = \"body\""},
          {kTiny + "precision.fp8_head=true", 0, "it applies to precision.compute = fp8, but that is fp32"},
          {kTiny + "parallel.zero=3", 0, "parallel.zero = \"3\" (command line) has no effect: this run"},
          {kTiny + "run.name=x --run here", 0, "run.name = \"x\" (command line) has no effect: --run"},
          {kTiny + "optim.warmup=500", 0, "optim.warmup = 500 is longer than the run"},
          {kTiny + "optim.lr=1e-3 optim.min_lr=1e-2", 0, "final learning rate is 1e-05"},
          {kTiny + "run.threads=64", 0, "run.threads = 64 exceeds the"},
          {"OMP_NUM_THREADS=many " + kTiny, 0, "OMP_NUM_THREADS=\"many\" is not a number of threads"},
          {"OMP_NUM_THREADS=64 " + kTiny, 0, "OMP_NUM_THREADS = 64 exceeds the"},
          {"printf 'a\\nb\\n' > nodes; PBS_JOBID=1 PBS_NODEFILE=nodes " + kTiny, 0,
           "PBS allocated 2 nodes to this job"},
          {"! " + kTiny + "2>&1 | grep warning", 0, ""},
      });
}

TEST(Remarks, AnUnfitGpuIsNamedFirst) {
  base::TemporaryFolder folder;
  const std::string fake = "env LD_LIBRARY_PATH=" LOCKSTEP_FAKE_GPU ":$LD_LIBRARY_PATH FAKE_GPU='GTX 1060' ";
  const std::string old_gpu = fake + "FAKE_GPU_DRIVER=580.1 FAKE_GPU_CAPABILITY=6.1 ",
                    old_driver = fake + "FAKE_GPU_DRIVER=470.2 FAKE_GPU_CAPABILITY=9.0 ";
  const std::string train = kTiny + "run.device=auto ";
  expect_rows(folder.path(),
              {
                  {old_gpu + train + "2>&1 | head -1", 0,
                   "warning: the GPU is not used: GTX 1060 has compute capability 6.1, but 7.5 is needed; "},
                  {old_driver + train + "2>&1 | head -1", 0,
                   "the GPU is not used: driver 470 is older than 580; install NVIDIA driver 580"},
                  {old_driver + train + "--nproc 2 2>&1", 0, "the GPU is not used: driver 470"},
                  {"! " + old_gpu + kTiny + "2>&1 | grep 'not used'", 0, ""},  // run.device=cpu: as asked
                  {old_gpu + "$L doctor | grep GPUs", 0, "warn"},
                  {old_driver + "$L doctor | grep -A2 GPUs", 0, "install NVIDIA driver"},
              });
}

TEST(Data, ThePathSaysWhatItIs) {
  base::TemporaryFolder folder;
  folder.write("book.txt", std::string(400, 'x'));
  folder.write("deep/er/book.txt", std::string(400, 'x'));
  folder.write("words.jsonl", "{\"text\": \"" + std::string(400, 'x') + "\"}\n");
  folder.write("mixed/a.jsonl", "{\"text\": \"hello\"}\n"), folder.write("mixed/b.txt", "hello");
  folder.write("recipes/own.toml", "[data]\npath = \"../book.txt\"\n");
  folder.write("recipes/list.toml", "[data]\npath = [\"../book.txt\", \"../deep\"]\n");
  folder.write("recipes/grammar.toml", "[data]\nkind = \"grammar\"\n");
  const std::string rest = kTiny.substr(8);
  expect_rows(
      folder.path(),
      {
          {kTiny + "data.path=book.txt", 0, "data    text book.txt"},
          {kTiny + "data.path=words.jsonl", 0, "data    jsonl words.jsonl"},
          {kTiny + "data.path='*.txt'", 0, "data    text *.txt"},
          {kTiny + "data.path=deep", 0, "data    text deep: 400 tokens"},
          {kTiny + "data.path=book.txt,deep", 0, "800 tokens"},
          {"HOME=" + folder.path() + " " + kTiny + "data.path='~/book.txt'", 0, "book.txt: 400 tokens"},
          {kTiny + "data.path=mixed", 2, "[LS0208]"},
          {kTiny + "data.path=absent.txt", 3, "[LS0202]"},
          {"$L train recipes/own.toml" + rest, 0, "data    text book.txt"},
          {"cd recipes && $L train own.toml" + rest, 0, "data    text ../book.txt"},
          {"$L train recipes/list.toml" + rest, 0, "800 tokens"},
          // A run's own config.toml means what the run meant, whatever lies beside it.
          {"cp book.txt words.jsonl runs/first; $L train runs/first/config.toml --resume never", 0,
           "data    text book.txt,deep"},
          {"$L train recipes/grammar.toml data.path=book.txt" + rest, 2, "[LS0209]"},
          {"$L train recipes/grammar.toml" + rest, 0, "data    grammar"},
      });
}

// Training longer: the learning rate is explained, and can be kept; an unchanged recipe is not talked about.
TEST(Train, GoesOnWithAnotherLength) {
  base::TemporaryFolder folder;
  const std::string train = kSmall + "optim.lr=0.01 ";
  expect_rows(folder.path(), {
                                 {train + "run.steps=10 run.name=a", 0, "done: 10 of 10"},
                                 {"! " + train + "run.steps=10 run.name=a 2>&1 | grep schedule", 0, ""},
                                 {train + "run.steps=10 run.name=a", 0, "run.steps to train longer"},
                                 {train + "run.steps=10 run.name=b", 0, "done"},
                                 {train + "run.steps=16 run.name=a", 0,
                                  "run.steps was 10, is now 16: the cosine schedule now ends at step 16, so "
                                  "the learning rate at step 11 is"},
                                 {train + "run.steps=16 run.name=b optim.decay_steps=10", 0,
                                  "the learning rate is unaffected"},
                                 // What was said once counts from then on.
                                 {train + "run.steps=20 run.name=b", 0,
                                  "run.steps was 16, is now 20: the learning rate is unaffected"},
                                 {train + "run.steps=8 run.name=b", 0, "already done: runs/b has 20 steps"},
                                 {train + "run.steps=20 run.name=b optim.beta1=0.8", 2, "[LS0160]"},
                             });
  const auto a = steps_of(folder.path() + "/runs/a/metrics.jsonl"),
             b = steps_of(folder.path() + "/runs/b/metrics.jsonl");
  ASSERT_EQ(a.size(), 16u);
  ASSERT_EQ(b.size(), 20u);
  for (size_t step = 0; step < 10; ++step) EXPECT_EQ(a[step]["loss_hex"], b[step]["loss_hex"]);
  EXPECT_GT(a[10]["lr"], 3 * b[10]["lr"].get<double>());
  for (size_t step = 10; step < 20; ++step) EXPECT_NEAR(b[step]["lr"], 0.001, 1e-9) << step;
}

// A mistake is told as what it is, whatever lies in the folder.
TEST(Train, ARecipesOwnMistakeComesBeforeTheFolder) {
  base::TemporaryFolder folder;
  expect_rows(folder.path(),
              {
                  {kSmall + "run.steps=2", 0, "done"},
                  {kSmall + "run.steps=2 batch.slices=3", 2, "choose one of 1, 2, 4"},
                  {kSmall + "run.steps=2 model.heads=3", 2, "[LS0122]"},
                  {kSmall + "run.steps=2 model.preset=7b", 2, "[LS0121]"},
                  {kSmall + "run.steps=2 data.path=absent.txt", 3, "[LS0202]"},
                  {kSmall + "run.steps=2 model.heads=3 batch.slices=3", 2, "2 errors"},
                  {kSmall + "run.steps=2 model.heads=3 batch.slices=3", 2, "[LS0122]\n"},
                  {kSmall + "run.steps=2 optim.lr=0.5", 2, "[LS0160]"},
                  // Sound alone, but not with what "auto" was in this folder: it is the change that counts.
                  {kSmall + "run.steps=2 batch.global=5 batch.slices=5", 2, "batch.global: was 4, is 5"},
                  // Keys that were left out this time have changed too: what "auto" was is nobody's mistake.
                  {"$L train run.steps=2 run.device=cpu", 2, "model.hidden: was 16, is 128"},
              });
}

// The recipe that nobody wrote does not stand in the way of what somebody did.
TEST(Train, TheBuiltInRecipeGivesWay) {
  base::TemporaryFolder folder;
  const std::string train =
      "$L train model.layers=1 model.hidden=16 model.heads=2 data.seq_len=8 run.steps=1 "
      "run.device=cpu --resume never ";
  expect_rows(folder.path(), {
                                 {train + "batch.slices=2", 0, "64 samples = 2 slices in 2 strands"},
                                 {train + "batch.global=12", 0, "12 samples = 6 slices in 6 strands"},
                                 {train, 0, "64 samples = 8 slices in 8 strands"},
                                 {"$L explain batch.slices", 0, "8 in the built-in recipe"},
                                 {"$L explain optim.momentum", 0, "optim.name = sgd"},
                                 {train + "batch.slices=2 batch.strands=8", 2, "choose one of 1, 2 ("},
                             });
}

}  // namespace
}  // namespace lockstep::cli
