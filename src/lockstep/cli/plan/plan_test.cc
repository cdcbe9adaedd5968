// plan, prices, receipt and bench machine as a person uses them.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

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
  // With a layout of its own, so that none is searched for.
  expect_rows(
      folder.path(),
      {{"$L plan --help", 0, "lockstep plan recipes/llama-8b.toml --on 8xH100"},
       {plan, 2, "plan needs --on MACHINES"},
       {plan + " --on 8xH10", 2, "did you mean H100?"},
       {plan + " --on 0xH100", 2, "[LS0571]"},
       {plan + " --on \"a3-highgpu-8g x 99999999999999999999\"", 2, "expected 1 to 1048576 devices"},
       {plan + " model.preset=8c --on 8xH100", 2, "lockstep: model.preset = \"8c\""},
       {plan + " --on 8xH100 --tariff cheap", 2, "--tariff \"cheap\": expected on_demand"},
       {plan + " --on a3-highgpu-8g --region mars", 2, "no price of a3-highgpu-8g in \"mars\""},
       {plan + " --on a3-highgpu-8g --tariff three_years --region us-central1", 2, "it has on demand"},
       {plan + " --on 8xH100 --tariff spot", 2, "have no price"},
       {plan + " --on 8xH100 --quick --apply -1", 2, "--apply N"},
       {plan + " --on A10G precision.compute=fp8", 2, "is sm_86"},
       {plan + " --on a2-ultragpu-8g --tariff spot --quick --preemptions 1000 parallel.zero=1", 0,
        "it would never end"},
       {plan + " --on 8xH100 parallel.tensor=3", 2, "[LS0"},
       {plan + " --on 8xH100 --quick", 0, "bottleneck: "},
       {plan + " --on 8xH100 --quick --explain parallel.zero=1", 0, "large products, half precision"},
       {plan + " --on A100 --scale 4:1", 2, "expected FIRST:LAST"},
       {plan + " --on A100 --scale 1:8", 0, "what is waited for"},
       {plan + " --on A100 --scale 1:8 --quota q", 2, "--quota has no effect with --scale"},
       {plan + " --on a3-highgpu-8g --sweep --quota q", 2, "--quota has no effect with --sweep"},
       {plan + " --on a3-highgpu-8g --sweep --scale 1:8", 2, "--scale has no effect with --sweep"},
       {plan + " --on 8xH100 --out x.csv", 2, "--out is for plan --sweep"},
       {plan + " --on a3-megagpu-8g --quick --tariff spot parallel.zero=1", 0, "checkpoint.every="},
       // Spot machines are cheapest in another region than those by the hour.
       {plan + " --on a3-highgpu-8g --quick --tariff spot parallel.zero=1", 0, "on demand in us-"},
       {plan + " --on a2-highgpu-8g --quick --tariff one_year parallel.zero=1", 0, "pays off from"},
       {plan + " --on a3-megagpu-8g --tariff spot --preemptions -1", 2, "--preemptions must be"},
       {plan + " --on V100 --quick", 0, "CUDA 13 refuses"},
       {plan + " --on 8xB200 --quick parallel.zero=1", 0, "not measured"},
       {plan + " model.preset=8b model.layers=32 --on T4 --quick", 1, "does not fit"},
       // Not only that nothing fits: how much is missing, and what would help.
       {plan + " model.layers=16 --on n1-standard-16-2xT4", 1, "--apply N writes one of them"},
       {plan + " model.layers=16 --on n1-standard-16-2xT4", 1,
        "no layout of 2 ranks fits; this one needs the least"},
       {plan + " model.layers=16 parallel.tensor=2 --on n1-standard-16-2xT4", 1,
        "no layout of 2 ranks fits\n"},
       {plan + " --on n1-standard-4", 2, "did you mean n1-standard-8-1xT4?"}});
}

TEST(Plan, JsonHasWhatScriptsNeed) {
  base::TemporaryFolder folder;
  const Outcome outcome = run_shell(
      folder.path(), alone("$L plan ") + kSmall + " --on a2-ultragpu-8g parallel.zero=1 --json 2>/dev/null");
  const nlohmann::json json = nlohmann::json::parse(outcome.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.output;
  for (const char* key : {"step_ms", "memory_gib", "mfu", "tokens_per_s", "hours", "usd", "kwh", "error"})
    EXPECT_TRUE(json.value(key, nlohmann::json()).is_number()) << key;
  EXPECT_GT(json["evaluations"]["ms"].get<double>(), 0);
  EXPECT_GE(json["saves"]["times"].get<double>(), 1);
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

// What is not known or does not apply is null, and shop quotes the price that plan does.
TEST(Plan, JsonOfSpotMachines) {
  base::TemporaryFolder folder;
  const auto json_of = [&](const std::string& line) {
    const Outcome outcome = run_shell(folder.path(), alone("$L ") + line + " --json 2>/dev/null");
    return nlohmann::json::parse(outcome.output, nullptr, false);
  };
  const std::string small = std::string(kSmall) + " run.steps=100000 checkpoint.every=100 ";
  const std::string plan = "plan " + small + "--on a2-ultragpu-1g --tariff spot --quick --preemptions ";
  const nlohmann::json never = json_of(plan + "1000")["spot"], calm = json_of(plan + "0")["spot"],
                       daily = json_of(plan + "1")["spot"];
  ASSERT_TRUE(never.is_object() && calm.is_object() && daily.is_object());
  EXPECT_FALSE(never["ends"].get<bool>());
  for (const auto& [key, value] : never.items()) EXPECT_TRUE(key == "ends" || value.is_null()) << key;
  for (const auto& [key, value] : calm.items()) EXPECT_EQ(value.is_null(), key == "checkpoint_every") << key;
  for (const auto& [key, value] : daily.items()) EXPECT_FALSE(value.is_null()) << key;
  const Outcome text = run_shell(folder.path(), alone("COLUMNS=1000 $L ") + plan + "1 2>/dev/null");
  EXPECT_NE(text.output.find("checkpoint.every=" + std::to_string(daily["checkpoint_every"].get<int64_t>())),
            std::string::npos)
      << text.output;
  for (const char* times : {"0", "1"}) {
    const nlohmann::json shop = json_of("shop " + small +
                                        "--only a2-ultragpu-1g --machines 1 --tariff spot "
                                        "--preemptions " +
                                        times);
    const nlohmann::json& spot = *times == '0' ? calm : daily;
    ASSERT_TRUE(shop.is_object());
    EXPECT_NEAR(shop["offers"][0]["usd"].get<double>() / spot["usd"].get<double>(), 1, 1e-9) << times;
  }
}

// The seeds' figure: 7.5 to 7.8 times as fast on the eight GPUs of one machine.
TEST(Plan, ScalesOverTheGpusOfOneMachine) {
  base::TemporaryFolder folder;
  const std::string plan = alone(
      "$L plan model.family=gpt2 model.preset=124m data.kind=tokens data.seq_len=1024 "
      "batch.global=512 batch.slices=32 batch.strands=8 --on a2-ultragpu-8g --scale 1:16");
  const Outcome outcome = run_shell(folder.path(), plan + " --json 2>/dev/null");
  double one = 0, eight = 0;
  std::string last;
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(row.is_object()) << outcome.output;
    if (row["ranks"] == 1) one = row["strong"]["step_ms"].get<double>();
    if (row["ranks"] == 8) eight = row["strong"]["step_ms"].get<double>();
    if (row["ranks"] == 16) last = row.value("strong_refused", "");
  }
  EXPECT_GE(one / eight, 7.5);
  EXPECT_LE(one / eight, 7.9);
  EXPECT_NE(last.find("batch.strands"), std::string::npos) << outcome.output;
  expect_rows(folder.path(), {{plan, 0, "strong scaling ends before 16 ranks"}});
}

TEST(Plan, Sweep) {
  base::TemporaryFolder folder;
  const std::string plan = alone("$L plan ") + kSmall;
  expect_rows(
      folder.path(),
      {{plan + " --sweep", 2, "plan --sweep needs --on"},
       {plan + " --on 8xH100 --out s.csv", 2, "--out is for plan --sweep"},
       {plan + " --sweep --on \"a3-highgpu-8g x 4:1\"", 2, "expected MACHINE x FIRST:LAST"},
       {plan + " --sweep --on \"a3-highgpu-8g x 1:2, 4xH100\" --out s.csv", 0, "all that fit are in s.csv"},
       {plan + " --sweep --on \"a2-ultragpu-1g, a2-ultragpu-8g\"", 0, "cost against time"},
       {plan + " --sweep --on T4 model.preset=8b model.layers=32", 1, "0 fit"},
       {"head -n 1 s.csv", 0, "machines,ranks,nodes,layout,recompute,step_ms,tokens_per_s"},
       {"grep -c '^4 x H100,4,' s.csv", 0, ""}});
  const Outcome outcome =
      run_shell(folder.path(), plan + " --sweep --on \"a3-highgpu-8g x 1:2\" --json 2>/dev/null");
  const nlohmann::json json = nlohmann::json::parse(outcome.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.output;
  // Every stage of sharding that fits is there, not the first alone, and the rows of a place are sorted.
  std::set<std::string> zeros;
  double last = 0;
  for (const auto& row : json["rows"]) {
    if (row["ranks"] != 8) continue;
    const std::string layout = row["layout"];
    for (const char* zero : {"data=8", "data=8,zero=1", "data=8,zero=2", "data=8,zero=3"}) {
      if (layout == zero) zeros.insert(layout);
    }
    EXPECT_GT(row["usd"].get<double>(), 0);
    last = std::max(last, row["step_ms"].get<double>());
  }
  EXPECT_EQ(zeros.size(), 4u);
}

TEST(Plan, Quota) {
  base::TemporaryFolder folder;
  std::ofstream(folder.path() + "/gcp.json")
      << R"({"name": "us-central1", "quotas": [{"metric": "NVIDIA_A100_80GB_GPUS", "limit": 8, "usage": 0}]})";
  std::ofstream(folder.path() + "/plain") << "us-east-1 p5.48xlarge 1\n";
  std::ofstream(folder.path() + "/bad") << "us-east-1 p5.48xlarg 1\n";
  const std::string plan = alone("$L plan ") + kSmall + " --quick ";
  expect_rows(
      folder.path(),
      {{plan + "--on a2-ultragpu-8g --quota gcp.json", 0, "fits"},
       {plan +
            "--on \"a2-ultragpu-8g x 2\" batch.slices=16 batch.global=16 batch.strands=16 --quota gcp.json",
        1, "gcloud beta quotas preferences create"},
       {plan + "--on p5.48xlarge --quota gcp.json", 2, "[LS0575]"},
       {plan + "--on p5.48xlarge --quota gcp.json --quota plain", 0, "us-east-1"},
       {plan + "--on 8xH100 --quota gcp.json", 2, "--quota is about machines"},
       {plan + "--on p5.48xlarge --quota bad", 2, "did you mean p5.48xlarge?"},
       {plan + "--on p5.48xlarge --quota nowhere", 2, "[LS0574]"}});
}

TEST(Plan, WhatDoesNotFitHasAMenu) {
  base::TemporaryFolder folder;
  std::ofstream(folder.path() + "/big.toml")
      << "[model]\nfamily = \"llama\"\npreset = \"1b\"\n\n[data]\nkind = \"tokens\"\nseq_len = 4096\n\n"
         "[batch]\nglobal = 16\nslices = 2  # too few\nstrands = 2\n";
  const std::string plan = alone("$L plan big.toml --on g2-standard-8 --quick");
  expect_rows(folder.path(), {{plan, 1, "changes that fit, cheapest first"},
                              {plan + " --apply 99", 2, "--apply 99: expected 1 to"},
                              {plan + " --apply 1", 1, "written"},
                              {plan, 0, "fits"},
                              {plan + " --apply 1", 2, "nothing to apply"}});
}

TEST(Plan, LossToExpect) {
  base::TemporaryFolder folder;
  const std::string plan = alone("$L plan ") + kSmall + " --on H100 --quick --loss ";
  expect_rows(
      folder.path(),
      {{plan + "chinchilla", 0, "loss: estimated at"},
       {plan + "'E=2 A=1 B=1 alpha=9 beta=9'", 0, "loss: estimated at 2.00 (2.00 to 2.00) by your law"},
       {plan + "nowhere", 2, "[LS0580]"},
       {plan + "'E=2'", 2, "expected a run folder, chinchilla, or a law"},
       {alone("$L train run.steps=5 run.device=cpu model.layers=1 model.hidden=32 data.seq_len=32"), 0, ""},
       {plan + "runs/first", 0, "shifted to pass through runs/first"}});
}

TEST(Shop, FindsTheCheapestAndTheFastest) {
  base::TemporaryFolder folder;
  std::ofstream(folder.path() + "/gcp.json")
      << R"({"name": "us-central1", "quotas": [{"metric": "NVIDIA_A100_80GB_GPUS", "limit": 1, "usage": 0}]})";
  const std::string shop = alone("$L shop ") + kSmall + " --only a2-ultragpu --machines 1 ";
  expect_rows(folder.path(), {{"$L shop --help", 0, "--by friday"},
                              {shop + "--tokens 1B", 0, "cheapest:"},
                              {shop + "--tokens lots", 2, "--tokens \"lots\""},
                              {shop + "--show 0", 2, "--show must be 1 or more"},
                              {shop + "--by someday", 2, "--by \"someday\""},
                              {shop + "--max nothing", 2, "--max \"nothing\""},
                              {shop + "--tokens 1B --max '$0.01'", 1, "too dear"},
                              {shop + "--tokens 1T --by 1h", 1, "too late"},
                              {shop + "--tokens 1B --quota gcp.json", 0, "quota 1 of 8 GPUs"},
                              {shop + "--tokens 1B --choose", 0, "chosen"},
                              {shop + "--region us-centrall1", 2, "did you mean us-central1?"},
                              {alone("$L shop --only nothing-like-it"), 2, "[LS0572]"}});
  const Outcome outcome =
      run_shell(folder.path(), shop + "--tokens 1B --tariff on_demand --json 2>/dev/null");
  const nlohmann::json json = nlohmann::json::parse(outcome.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.output;
  double cheapest = 1e9, fastest = 1e9;
  for (const auto& offer : json["offers"]) {
    cheapest = std::min(cheapest, offer["usd"].get<double>());
    fastest = std::min(fastest, offer["hours"].get<double>());
    EXPECT_NEAR(offer["usd"].get<double>(),
                offer["hours"].get<double>() * offer["usd_per_hour"].get<double>(), 1e-6);
  }
  EXPECT_EQ(json["cheapest"]["usd"].get<double>(), cheapest);
  EXPECT_EQ(json["fastest"]["hours"].get<double>(), fastest);
  EXPECT_NEAR(json["steps"].get<double>(), std::ceil(1e9 / (8 * 2048)), 0.5);
}

TEST(Budget, StopsSavedBeforeItIsSpent) {
  base::TemporaryFolder folder;
  // A dollar a second: steps of a tiny model take milliseconds, and two seconds are kept for the end.
  const std::string train = alone(
      "$L train run.device=cpu run.steps=100000 model.layers=1 model.hidden=32 data.seq_len=32 "
      "log.every=100 ");
  expect_rows(folder.path(), {{train + "run.budget='$8' run.price=auto", 2, "[LS0577]"},
                              {train + "run.budget='eight'", 2, "run.budget"},
                              {train + "run.budget='$8' run.price=3600", 75, "raise run.budget to continue"},
                              {train + "run.budget='$8.1' run.price=36000", 2, "[LS0578]"},
                              {"$L budget runs/first", 0, "runs/first"},
                              {train + "run.budget='$16' run.price=3600 --nproc 2", 75, "resuming from step"},
                              {"$L budget --gcp", 2, "needs --amount"},
                              {"$L budget --gcp --amount '$50'", 0, "--budget-amount=50.00USD"},
                              {"$L budget nowhere", 2, "[LS0579]"}});
  const Outcome events = run_shell(folder.path(), "cat runs/first/events.jsonl");
  EXPECT_EQ(events.output.find("restart"), std::string::npos) << events.output;  // by the launcher, in vain
  EXPECT_NE(events.output.find("50 %: $"), std::string::npos) << events.output;
  const Outcome spent = run_shell(folder.path(), "$L budget runs/first --json 2>/dev/null");
  const nlohmann::json json = nlohmann::json::parse(spent.output, nullptr, false);
  ASSERT_TRUE(json.is_array()) << spent.output;
  EXPECT_LT(json[0]["usd"].get<double>(), 16);
  EXPECT_GT(json[0]["usd"].get<double>(), 8);
  EXPECT_GE(json[0]["processes"].get<int>(), 2);
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
                              {"$L receipt nowhere", 2, "which a run writes when it ends or is stopped"}});
  const Outcome outcome = run_shell(folder.path(), "$L receipt runs/first --json");
  const nlohmann::json json = nlohmann::json::parse(outcome.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.output;
  EXPECT_GT(json["predicted_step_ms"].get<double>(), 0);
  // Each kind of work that was forecast was done, and the marks' parts are about a step.
  double marked = 0;
  for (const auto& part : json["parts"]) {
    ASSERT_TRUE(part["actual_ms"].is_number()) << part;
    marked += part["actual_ms"].get<double>();
    const std::string name = part["part"];
    if (name == "forward" || name == "backward" || name == "update")
      EXPECT_GT(std::min(part["predicted_ms"].get<double>(), part["actual_ms"].get<double>()), 0) << name;
  }
  EXPECT_GT(marked, 0);
  EXPECT_TRUE(json["actual_usd"].is_null());
  const Outcome paid =
      run_shell(folder.path(), train + " run.name=paid run.price=36 && $L receipt runs/paid");
  EXPECT_NE(paid.output.find("at $36.00/h"), std::string::npos) << paid.output;
  EXPECT_NEAR(json["predicted_memory_gib"].get<double>() / json["actual_memory_gib"].get<double>(), 1, 0.02);
}

TEST(BenchMachine, WritesAProfileThatPlansTake) {
  base::TemporaryFolder folder;
  std::ofstream ours(folder.path() + "/ours.toml");
  for (const auto& [name, device] : {std::pair{"ours-a-machine", "this"}, {"rented-a-machine", "A100"}})
    ours << "[machine." << name << "]\ncloud = \"c\"\ndevice = \"" << device
         << "\"\ndevices = 1\nnetwork_gb_s = 1.0\nsource = \"s\"\nchecked = \"d\"\n"
            "price.here = { on_demand = 1.0 }\n";
  ours.close();
  expect_rows(folder.path(),
              {{alone("$L plan --on 4xthis"), 2, "run `lockstep bench machine`"},
               {alone("$L bench machine --device cpu"), 0, "GB/s between ranks"},
               {alone("$L plan --on this --quick"), 0, "bottleneck"},
               {alone("$L plan --on 2xthis --quick"), 0, "data=2"},
               {"sed -i 's/^build = .*/build = \"0.0.9\"/' config/lockstep/machine.toml", 0, ""},
               {alone("$L plan --on this"), 2, "[LS0576]"},
               // One such profile does not end a search over all machines.
               {"cp ours.toml config/lockstep/catalogue.toml", 0, ""},
               {alone("$L shop ") + kSmall + " --only ours --machines 1", 2, "[LS0576]"},
               {alone("$L shop ") + kSmall + " --only a-machine --machines 1", 0, "not on ours-a-machine"}});
}

}  // namespace
}  // namespace lockstep::cli
