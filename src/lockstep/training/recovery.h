// What a run does so that it survives: where ranks that are started again go on from, the launcher's memory,
// and an early word when a notice is too short.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/run/saving/memory_snapshot.h"
#include "lockstep/run/session/together.h"
#include "lockstep/run/shared/preemption.h"
#include "lockstep/train.h"

namespace lockstep::training {

// Checkpoints that this launcher's earlier ranks wrote, newest first: those that ranks which are started
// again go on with, whatever `resume` said. Empty for ranks that are started for the first time.
std::vector<std::string> saved_since_launch(const std::string& folder);

// The launcher's memory for this rank, on every rank or on none. Collective.
std::unique_ptr<run::MemorySnapshots> open_snapshots(run::Session& session, TrainObserver& observer);

// Puts back the newest state in memory, if it is newer than what is on disk; its steps. Collective.
std::optional<int64_t> restore_newer(run::MemorySnapshots* snapshots, const run::Decision& decision);

// The same from what a launcher of this run kept on disk, for a process that has none.
std::optional<int64_t> restore_kept(run::Session& session, const std::string& folder,
                                    const run::Decision& decision, TrainObserver& observer);

// Says early when stopping and a save do not fit into the notice that this place gives.
class NoticeWatch : public run::Observer {
 public:
  NoticeWatch(const run::Session& session, const std::string& folder, run::Observer& tell);
  void stepped(const run::StepReport& report) override { check_.stepped(report, tell_); }
  void saved(double seconds, int64_t step) { check_.saved(seconds, step, tell_); }

 private:
  run::NoticeCheck check_;
  run::Observer& tell_;
};

}  // namespace lockstep::training
