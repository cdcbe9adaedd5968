// What was asked of train(), and what follows from that alone.
#pragma once

#include <memory>
#include <string>

#include "lockstep/train.h"

namespace lockstep::training {

class Request {
 public:
  Request(const recipe::Resolved& recipe, const TrainOptions& options, TrainObserver& observer);

  const recipe::Resolved& said;  // the recipe before anything was resolved
  const TrainOptions& options;
  TrainObserver& observer;
  const std::string folder;  // the run folder

  bool automatic() const { return options.resume == "auto"; }
  // What stands in the folder is not wanted. Ranks that are started again go on with what those before them
  // made of it.
  bool starts_over() const;
  run::Own own() const;  // what the program brought; its data is opened once

 private:
  mutable std::shared_ptr<data::Dataset> dataset_;
};

// Its launcher started this process for nothing else than saving what ranks before it left in memory.
bool only_saves();

}  // namespace lockstep::training
