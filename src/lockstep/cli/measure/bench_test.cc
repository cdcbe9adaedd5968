// `lockstep bench collectives` as a person runs it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

TEST(Bench, WrongWordsAreRefused) {
  base::TemporaryFolder folder;
  expect_rows(folder.path(), {
                                 {"$L bench", 2, "unknown benchmark"},
                                 {"$L bench collectivs", 2, "lockstep bench collectives"},
                                 {"$L bench collectives --nproc 1", 2, "--nproc must be 2 to 1024"},
                                 {"$L bench collectives --sizes 32M:8", 2, "[LS0524]"},
                                 {"$L bench collectives --sizes 8:900G", 2, "choose a smaller size"},
                                 {"$L bench collectives --op all_reduc", 2, "is not one of all_reduce"},
                                 {"$L bench collectives --engine mpi", 2, "[LS0522]"},
                                 {"$L bench --help", 0, "--engine"},
                             });
}

// Layouts and strands are training's alone.
TEST(Bench, GeneratingLeavesLayoutsOut) {
  base::TemporaryFolder folder;
  expect_rows(folder.path(),
              {{"$L bench generate model.layers=2 model.hidden=32 model.heads=4 run.device=cpu "
                "batch.product_strands=2 batch.sequence_strands=2 parallel.tensor=2 "
                "--prompt-tokens 8 --tokens 4",
                0, "tokens/s"}});
}

TEST(Bench, ReadingBatchesIsTimed) {
  base::TemporaryFolder folder;
  expect_rows(folder.path(),
              {{"$L bench data --seconds 0", 2, "--seconds"},
               {"$L bench data data.path=absent", 3, "absent"},
               {"seq 9999 >numbers.txt; $L bench data data.path=numbers.txt data.seq_len=16 --seconds 0.05",
                0, "2903 samples, opened in"}});
  const Outcome out = run_shell(folder.path(),
                                "$L bench data data.path=numbers.txt data.seq_len=16 batch.global=8 "
                                "--seconds 0.1 --json");
  const auto row = nlohmann::json::parse(out.output);
  EXPECT_EQ(row.at("samples"), 2903);
  EXPECT_GE(row.at("tokens_per_s").get<double>(), row.at("batches").get<double>() * 8 * 16 / 10);
  EXPECT_GT(row.at("tokens_per_processor_s").get<double>(), 0);
}

TEST(Bench, AStepIsTimedAgainstItsLimit) {
  base::TemporaryFolder folder;
  expect_rows(folder.path(),
              {{"$L bench step --help", 0, "--sweep"},
               {"$L bench step --help", 0, "--steps N  timed steps, after five warm-up steps; default: 20"},
               {"$L bench step --steps 1", 2, "at least 3"},
               {"$L bench step --steps 1 --sweep", 2, "at least 3"},
               {"$L bench step model.layrs=2", 2, "[LS0101]"},
               {"$L bench step model.layers=1 model.hidden=16 data.kind=jsonl data.path=absent --steps 3", 0,
                "of the limit"},
               {"$L bench step model.layers=2 model.hidden=64 run.device=cpu --steps 3", 0, "of the limit"}});
  const Outcome json = run_shell(
      folder.path(), "$L bench step model.layers=1 model.hidden=64 run.device=cpu --steps 3 --json");
  const auto row = nlohmann::json::parse(json.output);
  EXPECT_GT(row.at("step_ms").get<double>(), 0);
  EXPECT_LE(row.at("step_ms_p10").get<double>(), row.at("step_ms_p90").get<double>());
  EXPECT_GT(row.at("tokens_per_s").get<double>(), 0);
  EXPECT_GT(row.at("share_of_limit").get<double>(), 0);
  EXPECT_GT(row.at("first_step_s").get<double>(), 0);
  double laps = 0;
  for (const auto& [what, seconds] : row.at("timing_s").items()) laps += seconds.get<double>();
  EXPECT_NEAR(laps, row.at("first_step_s").get<double>(), 0.05);  // they add up
}

TEST(Bench, RowsHaveBothEnginesAndTheIdeal) {
  base::TemporaryFolder folder;
  const Outcome table = run_shell(folder.path(), "$L bench collectives --op all_reduce --sizes 1K:4K");
  EXPECT_EQ(table.code, 0) << table.output;
  for (const char* word :
       {"algbw", "busbw", "#wrong", "redop", "shm", "gloo", "ideal", "wrong elements: 0"}) {
    EXPECT_NE(table.output.find(word), std::string::npos) << word << " is not in\n" << table.output;
  }
  const Outcome json =
      run_shell(folder.path(), "$L bench collectives --nproc 3 --op sendrecv,all_gather --sizes 64K --json");
  EXPECT_EQ(json.code, 0) << json.output;
  std::istringstream lines(json.output);
  std::vector<std::string> operations;
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    operations.push_back(row.at("operation"));
    for (const char* engine : {"shm", "gloo"}) {
      EXPECT_EQ(row.at("engines").at(engine).at("wrong"), 0) << line;
      EXPECT_GT(row.at("engines").at(engine).at("time_us").get<double>(), 0) << line;
    }
  }
  EXPECT_EQ(operations, (std::vector<std::string>{"all_gather", "sendrecv"}));
}

TEST(Bench, NoRankOutlivesTheCommand) {
  base::TemporaryFolder folder;
  const Outcome outcome = run_shell(
      folder.path(),
      "$L bench collectives --json > rows & P=$!; "
      "for i in $(seq 300); do [ -s rows ] && break; sleep 0.1; done; "
      "C=$(cat /proc/$P/task/$P/children); kill -9 $P; sleep 1; "
      "for c in $C; do grep -qs ') [^ZX] ' /proc/$c/stat && echo left $c; done; set -- $C; echo ranks $#");
  EXPECT_NE(outcome.output.find("ranks 2"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("left"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace lockstep::cli
