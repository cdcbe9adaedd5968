// Where a run begins: what its folder holds, what `resume` makes of that, and what the recipe leaves open.
//
// Asked of the first rank alone (run::decide_together tells the others); the plan that it needs for an answer
// is the one it trains with.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/remote_owner.h"
#include "lockstep/run/folder/run_folder.h"
#include "lockstep/run/session/together.h"
#include "lockstep/training/request.h"

namespace lockstep::training {

// What the first rank has made when it has decided.
struct FirstRank {
  bool only_looks = false;  // a dry run: the folder stays as it is
  std::optional<run::Plan> plan = {};
  std::unique_ptr<run::RunFolder> files = nullptr;
  std::optional<checkpoint::RemoteOwner> store_owner = {};  // of checkpoint.to
};

// ConfigError 160: the folder's run has other keys. DataError 323: no such checkpoint.
run::Decision decide(const Request& request, const run::PlanOptions& options, FirstRank& own);

// What is known of a run that has ended, from its folder: the newest of `checkpoints` and metrics.jsonl.
TrainResult recorded_result(const std::string& folder, const std::vector<std::string>& checkpoints);

// Puts the first of the decision's checkpoints that can be used into the session; its steps. Each that cannot
// is named.
int64_t load_first(run::Session& session, const std::vector<std::string>& checkpoints,
                   TrainObserver& observer);

}  // namespace lockstep::training
