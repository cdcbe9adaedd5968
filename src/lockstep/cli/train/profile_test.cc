// `lockstep train --timing` and `--profile`.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/train/testing.h"

namespace lockstep::cli {
namespace {

TEST(Train, TimingAddsUpToTheEndOfTheFirstStep) {
  base::TemporaryFolder folder;
  const Outcome outcome = run_shell(folder.path(), kTinyRun + "run.steps=2 --run r --timing");
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
  expect_rows(folder.path(), {{kTinyRun + "run.steps=5 --run r --profile 2:3", 0, "2 steps, "},
                              {kTinyRun + "run.steps=5 --run s --profile 5:9", 0, "1 step, "}});
  // A run that goes on inside the steps asked for profiles those that are left, and says when none are.
  expect_rows(folder.path(), {{kTinyRun + "run.steps=9 --run t --resume s --profile 4:7", 0, "2 steps, "},
                              {kTinyRun + "run.steps=9 --run u --resume s --profile 2:3", 0,
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
              {{kTinyRun + "run.steps=3 --run r --profile 2 parallel.pipeline=2 batch.slices=2 --nproc 2", 0,
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

// What is measured for the profile's table is no memory of the run.
TEST(Train, AProfileLeavesTheMemoryFigureAlone) {
  base::TemporaryFolder folder;
  ASSERT_EQ(run_shell(folder.path(), kTinyRun + "run.steps=6 log.every=1 --profile 2:3").code, 0);
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
