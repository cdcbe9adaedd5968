// The receipt: what a run was forecast to take, beside what it took.
//
// A run writes forecast.json into its folder when it begins (write_forecast) and says at its end how near it
// came; read_receipt() compares the two of any run folder, finished or not.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/run/session/forecast.h"

namespace lockstep::run {

struct ForecastFor {
  std::string machine;
  bool measured = false;    // the machine; false: a guess was made of it
  double usd_per_hour = 0;  // of all machines; 0: nobody has said
};
void write_forecast(const std::string& folder, const Forecast& forecast, const ForecastFor& what);

struct Receipt {
  std::string run, machine;
  bool measured = false;  // the machine; false: a guess was made of it
  int64_t steps = 0;      // that were timed
  double predicted_step_ms = 0, actual_step_ms = 0;
  double predicted_memory_gib = 0, actual_memory_gib = 0;
  double predicted_hours = 0, actual_hours = 0;            // of the steps that were done
  double usd_per_hour = 0;                                 // 0: not known
  std::vector<std::pair<std::string, double>> verbs = {};  // of a step, milliseconds as forecast
  double data_wait_ms = 0;                                 // median of a step
  double spread = 0;                                       // the ninetieth percentile over the median
  double step_error() const { return predicted_step_ms / actual_step_ms - 1; }
  double predicted_usd() const { return usd_per_hour * predicted_hours; }
  double actual_usd() const { return usd_per_hour * actual_hours; }
  double memory_error() const { return predicted_memory_gib / actual_memory_gib - 1; }
  std::string why() const;  // a sentence: what explains the difference; empty where there is hardly any
};

// What a run has logged of its steps, by row.
struct Logged {
  std::vector<double> step_ms, data_wait_ms;
  double memory_gib = 0;  // the most; 0: not known
};

// ConfigError 573: no forecast, or no step that was timed. The first tenth of the steps, at least one and at
// most ten, warm up and do not count.
Receipt read_receipt(const std::string& folder);
Receipt compare_with_forecast(const std::string& folder,
                              Logged logged);  // of a run whose log is read already

std::string receipt_line(const Receipt& receipt);  // "forecast 120 ms per step, took 131 (8 % less) ..."

}  // namespace lockstep::run
