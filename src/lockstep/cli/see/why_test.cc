// lockstep why of runs that train, have ended, or are none; lockstep dash and metrics --listen with wrong
// words.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

constexpr const char* kSmall =
    "$L train model.layers=1 model.hidden=32 model.heads=2 data.seq_len=16 batch.global=8 log.every=1 -q "
    "run.steps=12 ";

TEST(Why, SaysWhereTheTimeGoesOrWhatEndedARun) {
  const base::TemporaryFolder folder;
  const std::string& path = folder.path();
  ASSERT_EQ(run_shell(path, std::string(kSmall) + "--nproc 2").code, 0);
  std::filesystem::create_directories(path + "/runs/ill/logs/attempt-1");
  std::ofstream(path + "/runs/ill/metrics.jsonl")
      << R"({"step":5,"loss":2,"time":"2026-01-02T03:04:05.500Z"})"
      << "\n";
  std::ofstream(path + "/runs/ill/events.jsonl")
      << R"({"event":"loss_spike","step":4,"why":"step 4: the loss jumped","time":"2026-01-02T03:04:05Z"})"
      << "\n"
      << R"({"event":"hang","step":5,"why":"rank 3 never entered reduce b7","time":"2026-01-02T03:04:05Z"})"
      << "\n";
  std::filesystem::create_directories(path + "/runs/dead");
  std::ofstream(path + "/runs/dead/config.toml") << "[run]\nsteps = 9\n";
  const std::string home = "HOME=" + path + " XDG_STATE_HOME=" + path + "/state ";
  expect_rows(path, {{home + "$L why runs/first", 0, "2 ranks on this host"},
                     {home + "$L why first", 0, "exposed communication"},
                     {home + "$L why runs/ill", 0, "rank 3 never entered reduce b7"},
                     {home + "$L why ill", 0, "loss: step 4: the loss jumped"},
                     {home + "$L why ill", 0, "runs/ill/logs/attempt-1"},
                     {home + "$L why dead", 0, "is stopped, step 0 of 9"},
                     {home + "$L why frist", 2, "[LS0725]"},
                     {home + "$L why", 2, "lockstep why runs/first"}});
  const auto why = nlohmann::json::parse(run_shell(path, home + "$L why first --json").output);
  const auto& time = why["time"];
  EXPECT_NEAR(time["computation"].get<double>() + time["communication"].get<double>() +
                  time["data"].get<double>() + time["idle"].get<double>(),
              1, 1e-6);
  EXPECT_GT(time["computation"], 0);
  EXPECT_EQ(why["state"], "finished");
}

TEST(Serving, WrongWordsAreRefused) {
  const base::TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() + "/runs/a");
  std::ofstream(folder.path() + "/runs/a/metrics.jsonl") << "";
  expect_rows(folder.path(), {{"$L dash none", 2, "is no folder"},
                              {"$L dash --port 70000", 2, "expected a port from 0 to 65535"},
                              {"$L dash --port -2", 2, "--port"},
                              {"$L dash --host 0.0.0.0 --no-token", 2, "for 127.0.0.1 only"},
                              {"$L dash --host 192.0.2.1", 2, "LS0764"},
                              {"$L metrics runs/a --listen 70000", 2, "expected a port"},
                              {"$L metrics runs/a --listen 0 --follow", 2, "--listen goes with --host alone"},
                              {"$L metrics runs/none --listen 0", 2, "LS0760"},
                              {"$L metrics runs/a runs/a --to prometheus", 2, "takes one run"}});
}

}  // namespace
}  // namespace lockstep::cli
