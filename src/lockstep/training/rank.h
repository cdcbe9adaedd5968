// A rank's work from the decision to the end of the run: it loads what there is to go on from, trains, saves.
//
// The first rank writes the folder's files and tells the observer; the others work and keep quiet.
#pragma once

#include <memory>

#include "lockstep/checkpoint/remote_owner.h"
#include "lockstep/run/saving/memory_snapshot.h"
#include "lockstep/training/decide.h"
#include "lockstep/training/stop_signal.h"
#include "lockstep/watch/recorder.h"

namespace lockstep::training {

struct Rank {
  const Request& request;
  run::Session& session;
  const run::Decision& decision;
  const StopSignal& signal;
  watch::Recorder& recorder;
  std::unique_ptr<run::MemorySnapshots> snapshots;          // null: nobody keeps any
  std::optional<checkpoint::RemoteOwner> store_owner = {};  // the first rank's: checkpoint.to
};

TrainResult run_first(const Rank& rank, run::RunFolder& files);
TrainResult run_beside(const Rank& rank);

}  // namespace lockstep::training
