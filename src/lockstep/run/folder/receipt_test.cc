#include "lockstep/run/folder/receipt.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::run {
namespace {

Forecast forecast_of(double step_ms, double gib) {
  Forecast f;
  f.step_seconds = step_ms / 1e3;
  f.parts = {{"products", step_ms / 1e3}};
  f.peak_bytes = static_cast<int64_t>(gib * (1 << 30));
  return f;
}

void write_metrics(const std::string& folder, const std::vector<double>& step_ms, double wait_ms) {
  std::ofstream file(folder + "/metrics.jsonl");
  for (size_t k = 0; k < step_ms.size(); ++k) {
    file << fmt::format("{{\"step\": {}, \"step_ms\": {}, \"data_wait_ms\": {}, \"mem_gib\": 2.0}}\n", k + 1,
                        step_ms[k], wait_ms);
  }
  file << "{\"step\": 99, \"step_m";  // cut off
}

TEST(Receipt, ComparesTheForecastWithTheMedianStep) {
  const base::TemporaryFolder folder;
  write_forecast(folder.path(), forecast_of(90, 1.98), {"a machine", true});
  write_metrics(folder.path(), {900, 100, 100, 101, 99, 100, 100, 100, 100, 100}, 0);
  const Receipt r = read_receipt(folder.path());
  EXPECT_EQ(r.steps, 9);  // without the first
  EXPECT_DOUBLE_EQ(r.actual_step_ms, 100);
  EXPECT_NEAR(r.step_error(), -0.1, 1e-9);
  EXPECT_NEAR(r.memory_error(), -0.01, 1e-6);
  EXPECT_NE(receipt_line(r).find("-10.0 %"), std::string::npos) << receipt_line(r);
}

TEST(Receipt, HasPartsAndMoney) {
  const base::TemporaryFolder folder;
  Forecast f = forecast_of(90, 1.98);
  f.verbs = {{"backward_input", 0.06}, {"communication", 0.03}};
  write_forecast(folder.path(), f, {.machine = "a machine", .measured = true, .usd_per_hour = 36});
  write_metrics(folder.path(), {900, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100}, 0);
  const Receipt r = read_receipt(folder.path());
  ASSERT_EQ(r.verbs.size(), 2u);
  EXPECT_DOUBLE_EQ(r.verbs[0].second + r.verbs[1].second, 90);
  EXPECT_NEAR(r.actual_usd(), 10 * 0.1 * 36 / 3600, 1e-12);
  EXPECT_NEAR(r.predicted_usd() / r.actual_usd(), 0.9, 1e-9);
  // Of another version, or damaged in what only explains: the rest counts.
  std::ofstream(folder.path() + "/forecast.json")
      << R"({"step_ms": 90, "memory_gib": 1, "machine": 5, "measured": "yes", "verbs": [], "usd_per_hour": null})";
  EXPECT_TRUE(read_receipt(folder.path()).verbs.empty());
}

TEST(Receipt, SaysWhyTheyDiffer) {
  struct Row {
    bool measured;
    double predicted, wait;
    std::vector<double> steps;
    const char* why;
  };
  const std::vector<double> even(20, 100.0);
  std::vector<double> uneven = even;
  for (size_t k = 2; k < 20; k += 4) uneven[k] = 150;
  for (const Row& row : std::vector<Row>{{true, 99, 0, even, ""},
                                         {false, 50, 0, even, "was not measured"},
                                         {true, 60, 35, even, "35.0 ms for data"},
                                         {true, 60, 0, uneven, "steps vary"},
                                         {true, 60, 0, even, "slower than the profile"},
                                         {true, 160, 0, even, "busier time"}}) {
    const base::TemporaryFolder folder;
    write_forecast(folder.path(), forecast_of(row.predicted, 2), {"a machine", row.measured});
    write_metrics(folder.path(), row.steps, row.wait);
    const std::string why = read_receipt(folder.path()).why();
    if (*row.why == 0) {
      EXPECT_EQ(why, "");
    } else {
      EXPECT_NE(why.find(row.why), std::string::npos) << why;
    }
  }
}

TEST(Receipt, RefusesWhatIsNoRun) {
  const base::TemporaryFolder folder;
  const auto number = [&] {
    try {
      read_receipt(folder.path());
    } catch (const base::ConfigError& error) {
      return error.number();
    }
    return 0;
  };
  EXPECT_EQ(number(), 573);  // no forecast
  std::ofstream(folder.path() + "/forecast.json") << "{\"step_ms\": \"many\"}";
  EXPECT_EQ(number(), 573);  // damaged
  write_forecast(folder.path(), forecast_of(1, 1), {"", true});
  EXPECT_EQ(number(), 573);  // no steps
}

}  // namespace
}  // namespace lockstep::run
