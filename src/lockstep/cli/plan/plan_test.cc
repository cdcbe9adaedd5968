// plan, prices, receipt and bench machine as a person uses them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

constexpr const char* kSmall =
    "model.family=llama model.preset=1b model.layers=2 data.kind=tokens data.seq_len=2048 batch.global=8 "
    "batch.slices=8 batch.strands=8";

// A profile or a catalogue of whoever runs the tests changes nothing here.
std::string alone(const std::string& line) { return "XDG_CONFIG_HOME=$PWD/config " + line; }

TEST(Plan, UsageAndWrongWords) {
  base::TemporaryFolder folder;
  const std::string plan = alone("$L plan ") + kSmall;
  expect_rows(folder.path(),
              {{"$L plan --help", 0, "lockstep plan recipes/llama-8b.toml --on 8xH100"},
               {plan, 2, "plan needs --on MACHINES"},
               {plan + " --on 8xH10", 2, "did you mean H100?"},
               {plan + " --on 0xH100", 2, "[LS0571]"},
               {plan + " --on 8xH100 --tariff cheap", 2, "--tariff \"cheap\": expected on_demand"},
               {plan + " --on a3-highgpu-8g --region mars", 2, "no price of a3-highgpu-8g in \"mars\""},
               {plan + " --on 8xH100 parallel.tensor=3", 2, "[LS0"},
               {plan + " --on 8xH100 --quick", 0, "bottleneck: "},
               {plan + " --on 8xH100 --quick --explain", 0, "large products, half precision"},
               {plan + " --on A100 --scale 4:1", 2, "expected FIRST:LAST"},
               {plan + " --on A100 --scale 1:8", 0, "what is waited for"},
               {plan + " --on a3-megagpu-8g --quick --tariff spot", 0, "checkpoint.every="},
               {plan + " --on a2-highgpu-8g --quick --tariff one_year", 0, "pays off from"},
               {plan + " --on a3-megagpu-8g --tariff spot --preemptions -1", 2, "--preemptions must be"},
               {plan + " --on V100 --quick", 0, "CUDA 13 refuses"},
               {plan + " --on 8xB200 --quick", 0, "not measured"},
               {plan + " model.preset=8b model.layers=32 --on T4 --quick", 1, "does not fit"}});
}

TEST(Plan, JsonHasWhatScriptsNeed) {
  base::TemporaryFolder folder;
  const Outcome outcome = run_shell(
      folder.path(), alone("$L plan ") + kSmall + " --on a2-ultragpu-8g parallel.zero=1 --json 2>/dev/null");
  const nlohmann::json json = nlohmann::json::parse(outcome.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.output;
  for (const char* key : {"step_ms", "memory_gib", "mfu", "tokens_per_s", "hours", "usd", "kwh", "error"})
    EXPECT_TRUE(json.value(key, nlohmann::json()).is_number()) << key;
  double parts = 0;
  for (const auto& part : json["parts"]) parts += part.get<double>();
  EXPECT_NEAR(parts / json["step_ms"].get<double>(), 1, 1e-6);
  ASSERT_GE(json["layouts"].size(), 3u);
  // The best is the simplest of those that are about as fast.
  EXPECT_LE(json["layouts"][0]["step_ms"].get<double>(), 1.03 * json["layouts"][2]["step_ms"].get<double>());
  EXPECT_FALSE(json["bottleneck"]["part"].get<std::string>().empty());
  // The whole run at the machine's price.
  EXPECT_GT(json["usd"].get<double>(), 30 * json["hours"].get<double>());
}

TEST(Prices, AreListedAndReplaced) {
  base::TemporaryFolder folder;
  std::ofstream(folder.path() + "/ours.toml")
      << "[machine.a3-highgpu-8g]\ncloud = \"gcp\"\ndevice = \"H100\"\ndevices = 8\nnetwork_gb_s = 100.0\n"
         "source = \"contract\"\nchecked = \"2026-09-01\"\nprice.us-central1 = { on_demand = 12.5 }\n";
  std::ofstream(folder.path() + "/wrong.toml") << "[machine.x]\ncloud = 1\n";
  std::ofstream(folder.path() + "/other.toml") << "[machine.x]\ncloud = \"c\"\ndevice = \"Z9\"\ndevices = "
                                                  "8\nnetwork_gb_s = 1.0\nsource = \"s\"\nchecked = \"d\"\n";
  expect_rows(folder.path(), {{alone("$L prices H100"), 0, "p5.48xlarge"},
                              {alone("$L prices gcp --region europe-west4"), 0, "in europe-west4"},
                              {alone("$L prices nothing-like-it"), 2, "[LS0572]"},
                              {alone("$L prices --update wrong.toml"), 2, "wrong.toml:2: [machine.x]: cloud"},
                              {alone("$L prices --update other.toml"), 2, "no [device.Z9]"},
                              {alone("$L prices --update ours.toml"), 0, "1 machines and 0 devices"},
                              {alone("$L prices a3-highgpu-8g"), 0, "$12.50"}});
  const Outcome json = run_shell(folder.path(), alone("$L prices --json"));
  EXPECT_TRUE(nlohmann::json::accept(json.output));
  std::ofstream(folder.path() + "/config/lockstep/catalogue.toml") << "[machine\n";
  expect_rows(folder.path(), {{alone("$L prices"), 2, "[LS0570]"}});
}

TEST(Receipt, OfARunThatWasForecast) {
  base::TemporaryFolder folder;
  const std::string train = alone(
      "$L train run.steps=12 run.device=cpu model.layers=1 model.hidden=32 data.seq_len=32 log.every=1");
  const Outcome unmeasured = run_shell(folder.path(), train + " run.name=unmeasured");
  EXPECT_EQ(unmeasured.output.find("forecast "), std::string::npos) << unmeasured.output;
  expect_rows(folder.path(), {{alone("$L bench machine --device cpu"), 0, "machine.toml"},
                              {train, 0, "forecast "},
                              {"$L receipt runs/first", 0, "first"},
                              {"$L receipt runs/unmeasured", 0, "unmeasured"},
                              {"$L receipt", 2, "receipt needs a run folder"},
                              {"$L receipt nowhere", 2, "[LS0573]"}});
  const Outcome outcome = run_shell(folder.path(), "$L receipt runs/first --json");
  const nlohmann::json json = nlohmann::json::parse(outcome.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.output;
  EXPECT_GT(json["predicted_step_ms"].get<double>(), 0);
  EXPECT_NEAR(json["predicted_memory_gib"].get<double>() / json["actual_memory_gib"].get<double>(), 1, 0.02);
}

TEST(BenchMachine, WritesAProfileThatPlansTake) {
  base::TemporaryFolder folder;
  expect_rows(folder.path(), {{alone("$L plan --on this"), 2, "[LS0571]"},
                              {alone("$L bench machine --device cpu"), 0, "machine.toml"},
                              {alone("$L plan --on this --quick"), 0, "bottleneck"},
                              {alone("$L plan --on 2xthis --quick"), 0, "data=2"}});
}

}  // namespace
}  // namespace lockstep::cli
