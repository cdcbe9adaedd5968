// What Kubeflow Trainer's controller is told of a run.
#include "lockstep/see/kubeflow.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::see {
namespace {

MetricTable rows_to(int64_t step, double step_ms) {
  MetricTable rows;
  for (int64_t k = 1; k <= step; ++k)
    rows.add({.step = k, .values = {{"loss", 5.0 - 0.01 * static_cast<double>(k)}, {"step_ms", step_ms}}});
  return rows;
}

nlohmann::json told(const MetricTable& rows, int64_t steps, bool finished) {
  const std::string body = trainer_status(rows, steps, {.finished = finished, .now = "2026-03-01T12:00:00Z"});
  return nlohmann::json::parse(body).at("trainerStatus");
}

struct Row {
  int64_t step, steps;
  bool finished;
  int percent, remaining;  // -1: not told
};

TEST(Kubeflow, ProgressOfARun) {
  for (const Row& row : {Row{0, 100, false, 0, -1}, Row{1, 100, false, 1, 50}, Row{25, 100, false, 25, 38},
                         Row{199, 200, false, 99, 1}, Row{200, 200, false, 99, 0},
                         Row{200, 200, true, 100, 0}, Row{7, 0, false, -1, -1}, Row{12, 10, false, 99, 0}}) {
    const nlohmann::json status = told(rows_to(row.step, 500), row.steps, row.finished);
    EXPECT_EQ(status.value("progressPercentage", -1), row.percent) << row.step << " of " << row.steps;
    EXPECT_EQ(status.value("estimatedRemainingSeconds", -1), row.remaining)
        << row.step << " of " << row.steps;
    EXPECT_EQ(status["lastUpdatedTime"], "2026-03-01T12:00:00Z");
  }
}

TEST(Kubeflow, MetricsAreTextOfTheNewestNumbers) {
  const nlohmann::json status = told(rows_to(20, 500), 100, false);
  EXPECT_EQ(status["metrics"], nlohmann::json::parse(R"([{"name":"step","value":"20"},
      {"name":"loss","value":"4.8"},{"name":"step_ms","value":"500"}])"));
  MetricTable many;
  LogRow wide{.step = 1};
  for (int k = 0; k < 100; ++k) wide.values.emplace_back("m" + std::to_string(k), k);
  many.add(wide);
  EXPECT_EQ(told(many, 10, false)["metrics"].size(), 32u);
}

TEST(Kubeflow, TheTokenIsReadEachTimeAndMustBeOne) {
  const base::TemporaryFolder place;
  const TrainerServer server{.url = {}, .ca_file = "ca.crt", .token_file = place.path() + "/token"};
  EXPECT_EQ(credentials_of(server).bearer, "") << "no file yet";
  EXPECT_EQ(credentials_of(server).ca_file, "ca.crt");
  for (const auto& [file, bearer] : {std::pair("one\n", "one"), std::pair("two.x-y_z", "two.x-y_z"),
                                     std::pair("a\r\nHost: b", ""), std::pair("", "")}) {
    base::write_file_durable(server.token_file, file);
    EXPECT_EQ(credentials_of(server).bearer, bearer);
  }
}

TEST(Kubeflow, TheServerIsInTheEnvironment) {
  ::unsetenv("KUBEFLOW_TRAINER_SERVER_URL");
  std::string problem;
  EXPECT_FALSE(trainer_server(&problem));
  EXPECT_EQ(problem, "");
  ::setenv("KUBEFLOW_TRAINER_SERVER_URL", "ftp://x", 1);
  EXPECT_FALSE(trainer_server(&problem));
  EXPECT_NE(problem.find("KUBEFLOW_TRAINER_SERVER_URL"), std::string::npos);
  ::setenv("KUBEFLOW_TRAINER_SERVER_URL", "https://trainer.kubeflow:8082/apis/status", 1);
  const auto server = trainer_server();
  ::unsetenv("KUBEFLOW_TRAINER_SERVER_URL");
  ASSERT_TRUE(server);
  EXPECT_EQ(server->url.host, "trainer.kubeflow");
  EXPECT_EQ(server->url.port, "8082");
}

}  // namespace
}  // namespace lockstep::see
