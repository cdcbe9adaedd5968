// Notices a store that does not keep up: steps that wait for their data for a good part of their time.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/recipe/recipe.h"
#include "lockstep/run/loop/trainer.h"

namespace lockstep::training {

class DataWatch : public run::Observer {
 public:
  DataWatch(const recipe::Recipe::Data& data, run::Observer& everyone);
  void stepped(const run::StepReport& report) override;

 private:
  const std::string path_;
  const bool streams_;  // data in a store; others' waits are told by the metrics alone
  run::Observer& everyone_;
  int64_t steps_ = 0;
  double waited_ms_ = 0, all_ms_ = 0;
  bool slow_ = false;
};

}  // namespace lockstep::training
