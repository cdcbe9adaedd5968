// forecast.json, made beside the first steps, and the receipt at the end of the run.
#pragma once

#include <string>
#include <thread>

#include "lockstep/run/session/session_plan.h"

namespace lockstep::training {

class ForecastFile {
 public:
  // `plan` must outlive it. What goes wrong is not worth a word: a run without a forecast trains all the
  // same.
  ForecastFile(const run::Plan& plan, const std::string& folder);
  // "forecast 120 ms per step, took 131 ..."; empty where there is nothing to compare.
  std::string receipt();

 private:
  std::string folder_;
  std::jthread maker_;
};

}  // namespace lockstep::training
