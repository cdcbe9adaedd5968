// The built program as a newcomer sees it: odd words, broken files, full disks. One row a case.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

TEST(Program, UsageAndHelp) {
  base::TemporaryFolder folder;
  const std::vector<Row> rows = {
      {"$L", 2, "commands"},
      {"$L --help", 0, "lockstep explain LS0107"},
      {"$L -h", 0, "exit codes"},
      {"$L help", 0, "examples"},
      {"$L help init", 0, "--force"},
      {"$L --version", 0, "lockstep 0."},
      {"$L version", 0, "lockstep 0."},
      {"$L train --version", 0, "lockstep 0."},
      {"$L trian", 2, "did you mean `lockstep train`?"},
      {"$L banana", 2, "commands are init, tokenize, data, train"},
      {"$L ''", 2, "commands"},
      {"$L --banana", 2, "[LS0108]"},
      {"$L \"$(printf '\\033[2Jx')\"", 2, "\"\\u001B[2Jx\" is not a command"},
      {"$L init --help", 0, "lockstep init first.toml"},
      {"$L init --forec", 2, "did you mean --force?"},
      {"$L init a b", 2, "init: unknown argument \"b\""},
      {"$L doctor --run", 2, "[LS0109]"},
      {"$L explain recipe --help", 0, "KEY=VALUE"},
  };
  expect_rows(folder.path(), rows);
}

TEST(Program, InitWritesARecipeOnce) {
  base::TemporaryFolder folder;
  folder.write("file", "");
  const std::vector<Row> rows = {
      {"$L init first.toml", 0, "lockstep train first.toml"},
      {"$L init first.toml", 2, "first.toml already exists"},
      {"$L init --force first.toml", 0, "wrote first.toml"},
      {"$L init && test -s recipe.toml", 0, "wrote recipe.toml"},
      {"$L init -", 0, "[optim]"},
      {"$L init . --force", 1, "cannot be written"},
      {"$L init no/such/folder.toml", 1, "[LS0802]"},
      {"$L init file/x.toml", 1, "not a folder"},
      {"$L explain recipe first.toml", 0, "first.toml:"},
      {"$L explain recipe first.toml --changed | grep -c first.toml: || true", 0,
       "0"},  // it names the defaults
  };
  expect_rows(folder.path(), rows);
}

TEST(Program, ExplainsKeysErrorsAndRecipes) {
  base::TemporaryFolder folder;
  folder.write("good.toml", "[optim]\nlr = 1e-4\n");
  folder.write("bad.toml", "[optim]\nlearning_rate = 1e-4\n");
  folder.write("torn.toml", "[optim\n");
  const std::vector<Row> rows = {
      {"$L explain", 0, "[precision]"},
      {"$L explain optim.lr", 0, "Learning rate"},
      {"$L explain optim", 0, "optim.weight_decay"},
      {"$L explain '[memory]'", 0, "memory.recompute"},
      {"$L explain LS0107", 0, "remedies"},
      {"$L explain ls107", 0, "LS0107"},
      {"$L explain LS0999", 2, "LS0999 is not a Lockstep error code"},
      {"$L explain learning_rate", 2, "did you mean optim.lr?"},
      {"$L explain qqqqqqqqqq", 2, "`lockstep explain` lists the keys"},
      {"$L explain recipe good.toml", 0, "good.toml:2"},
      {"$L explain recipe good.toml optim.lr=2", 0, "command line"},
      {"$L explain recipe optim.lr=2 --changed", 0, "command line"},
      {"$L explain recipe model.preset=350m | grep model.layers", 0, "24 "},
      {"$L explain recipe model.preset=351m", 2, "[LS0121]"},
      {"$L explain recipe bad.toml", 2,
       "bad.toml:2: optim.learning_rate is not a recipe key; did you mean optim.lr?"},
      {"$L explain recipe torn.toml", 2, "torn.toml:1:"},
      {"$L explain recipe missing.toml", 2, "[LS0106]"},
      {"$L explain recipe .", 2, "it is a folder"},
      {"$L explain recipe good.toml optim.lr", 2, "[LS0107]"},
      {"$L explain recipe good.toml optim.lr=fast", 2, "[LS0102]"},
      {"$L explain recipe good.toml optim.lr=-1", 2, "[LS0103]"},
      {"$L explain recipe good.toml optim.name=adma", 2, "one of adamw, sgd, lion"},
  };
  expect_rows(folder.path(), rows);
}

TEST(Program, TrainRefusesBadRecipesBeforeAnythingStarts) {
  base::TemporaryFolder folder;
  const std::vector<Row> rows = {
      {"$L train missing.toml", 2, "[LS0106]"},
      {"$L train optim.learning_rate=1", 2, "did you mean optim.lr?"},
      {"$L train run.name=../up", 2, "[LS0104]"},
  };
  expect_rows(folder.path(), rows);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/runs"));
}

// What people type out of habit: a sentence with the word that was meant, and nothing is started.
TEST(Program, SlipsOfTheFingerAreNamedWithTheirRemedy) {
  base::TemporaryFolder folder;
  const std::vector<Row> rows = {
      {"$L train run.steps = 10", 2, "write run.steps=10, without spaces"},
      {"$L train run.steps =10", 2, "write run.steps=10, without spaces"},
      {"$L train run.steps= 10", 2, "write run.steps=10, without spaces"},
      {"$L train run.steps 10", 2, "write run.steps=10, without spaces"},
      {"$L train run.steps=1 --run \"$UNSET\"", 2, "--run needs a value, but it is empty"},
      {"$L train run.steps=1 --resume=", 2, "--resume needs a value, but it is empty"},
      {"$L train optim.lr=1 run.steps = 10 optim.lr=2", 2, "write run.steps=10, without spaces"},
      {"$L train run.steps optim.lr=2", 2, "write run.steps=VALUE"},
      {"$L train x.toml run.steps = 10", 2, "write run.steps=10, without spaces"},
      {"$L eval runs/first run.steps = 10", 2, "write run.steps=10, without spaces"},
      {"$L generate run.steps = 10", 2, "write run.steps=10, without spaces"},
      {"$L explain recipe run.steps = 10 | cat", 0, "write run.steps=10, without spaces"},
      {"$L train --run.steps 10", 2, "keys have no dashes: write run.steps=VALUE"},
      {"$L train --optim.lr=3", 2, "keys have no dashes: write optim.lr=VALUE"},
      {"$L train --learning-rate 3", 2, "keys have no dashes: write optim.lr=VALUE"},
      {"$L train --num_train_epochs=3", 2, "run.steps = epochs x samples / batch.global"},
      {"$L explain bf16", 2, "write precision.compute=bf16"},
      {"$L train --nproc", 2, "--nproc needs a value: ranks on this node"},
      {"$L train --nproc=", 2, "--nproc needs a value"},
      {"$L train --nproc run.steps=3", 2, "--nproc needs a value before \"run.steps=3\""},
      {"$L train --nproc --json", 2, "--nproc needs a value before \"--json\""},
      {"$L generate --seed --tokens 3", 2, "--seed needs a value before \"--tokens\""},
      {"$L launch --nproc", 2, "--nproc needs a value"},
  };
  expect_rows(folder.path(), rows);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/runs"));
}

TEST(Program, OutputThatCannotBeWritten) {
  base::TemporaryFolder folder;
  const std::vector<Row> rows = {
      {"$L schema > /dev/full", 1, "cannot write to standard output"},
      {"$L schema > /dev/null", 0, ""},
  };
  expect_rows(folder.path(), rows);
  // A reader that has gone away is not worth a word, nor a death by signal.
  const Outcome outcome =
      run_shell(folder.path(), "(sleep 0.1; $L schema; $L doctor; $L explain; echo code $? >&2) | true");
  EXPECT_EQ(outcome.output, "code 0\n");
}

TEST(Program, JsonIsJson) {
  base::TemporaryFolder folder;
  for (const char* line :
       {"$L schema", "$L explain --json", "$L explain optim.lr --json", "$L explain LS0101 --json",
        "$L explain recipe --json", "$L doctor --json", "$L topo --json"}) {
    const Outcome outcome = run_shell(folder.path(), line);
    EXPECT_TRUE(nlohmann::json::accept(outcome.output)) << line << "\n" << outcome.output;
  }
}

TEST(Program, DoctorsExitCodeFollowsItsFindings) {
  base::TemporaryFolder folder;
  const Outcome outcome = run_shell(folder.path(), "$L doctor --json");
  const auto report = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(outcome.code, report["fit"] ? 0 : 1);
  EXPECT_GE(report["findings"].size(), 10u);
  for (const auto& finding : report["findings"]) {
    EXPECT_EQ(finding["verdict"] == "ok", finding["remedy"] == "") << finding;
  }
  const Outcome bad = run_shell(folder.path(), "OMP_NUM_THREADS=100000 $L doctor --run /proc/nowhere");
  EXPECT_EQ(bad.code, 1) << bad.output;
  EXPECT_NE(bad.output.find("unset OMP_NUM_THREADS"), std::string::npos) << bad.output;
}

TEST(Program, NoControlCharactersInAPipe) {
  base::TemporaryFolder folder;
  for (const char* line :
       {"$L --help", "$L explain", "$L doctor", "$L topo", "$L banana", "$L explain LS0101"}) {
    for (char c : run_shell(folder.path(), line).output) {
      ASSERT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << line;
    }
  }
}

}  // namespace
}  // namespace lockstep::cli
