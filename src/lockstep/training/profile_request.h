// `lockstep profile RUN --steps 3`: somebody asks a run in flight for a profile, by a file in its folder.
//
// RUN/trace/wanted.json says how many steps. The first rank looks for it twice a second, takes it away, and
// tells the others with its next step (run/loop/trainer.cc), so that all profile the same steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/run/executor/profile.h"

namespace lockstep::training {

class ProfileRequest {
 public:
  explicit ProfileRequest(const std::string& run_folder);
  // How many steps are asked for; 0: none. Costs a look at a folder at most twice a second.
  int64_t steps();

 private:
  std::string path_;
  std::chrono::steady_clock::time_point looked_at_{};
};

// "steps 10 to 12, in trace/profile.json".
std::string profiled_words(const run::Profile& profile);

}  // namespace lockstep::training
