// Training runs made by this same program, one after another, as a person would start them.
#pragma once

#include <atomic>
#include <string>

#include "lockstep/verify/verify.h"

namespace lockstep::verify {

struct ChildOptions {
  std::string program;                     // the path of lockstep
  double most_seconds = 120;               // a run that takes longer is ended and has failed
  const std::atomic<int>* stop = nullptr;  // not zero: end the run
};

// Runs `PROGRAM train JOB...`; what it says is kept in FOLDER.log beside the run's folder.
Train train_by(const ChildOptions& options);

// The sentence with which a run ended, out of all that it said.
std::string last_sentence(const std::string& output);

}  // namespace lockstep::verify
