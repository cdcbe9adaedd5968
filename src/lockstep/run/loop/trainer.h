// The training loop: steps, evaluations, checkpoints, and a word to whoever watches.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/run/session/session.h"
#include "lockstep/run/shared/observer.h"

namespace lockstep::watch {
class Recorder;
}

namespace lockstep::run {

// A loss or gradient that is not a number has ended the run: LS0601.
struct NonfiniteError : base::RunError {
  using RunError::RunError;
};
// Copies of the weights are no longer equal: LS0602.
struct DivergedError : base::RunError {
  using RunError::RunError;
};

class MemorySnapshots;

struct TrainOptions {
  int64_t first_step = 0;                         // steps already done
  int64_t last_step = 0;                          // stop behind it, without evaluating; 0: run.steps
  bool unsaved = false;                           // what they gave stands in no checkpoint yet
  bool save_only = false;                         // take no step, only save
  const std::atomic<int>* stop_signal = nullptr;  // non-zero: stop at the next step boundary
  // Asked of the first rank at each boundary: true ends the run there, saved, as a signal would.
  std::function<bool()> wants_end;
  // Called at a boundary with everything read back; writes a checkpoint of `step` steps.
  std::function<void(int64_t step)> save;
  int64_t save_every = 0;   // steps; 0: not by steps
  double save_seconds = 0;  // of the first rank's clock; 0: not by time. Without either: only at the end
  int64_t (*clock_ns)() = base::monotonic_ns;  // what saves by time go by
  // Where this rank says what it is at, and the memory that outlives it; null: neither.
  watch::Recorder* recorder = nullptr;
  MemorySnapshots* snapshots = nullptr;
  // Steps to profile, counted from 1; what was seen goes to `made`. `requested`: of the first rank, asked
  // before every step: how many steps somebody wants to have profiled from now on; 0: none.
  enum class Asked : uint8_t { before, meanwhile };  // by who started the run, or by `requested`
  struct {
    int64_t first = 0, last = 0;
    std::function<void(const Profile&, Asked)> made;
    std::function<int64_t()> requested;
  } profile;
};

struct Summary {
  int64_t steps = 0;  // done in all
  bool finished = false;
  bool by_request = false;  // TrainOptions::wants_end has ended it, on every rank's word
  double loss = 0;          // mean over the last tenth of the run, as far as this process has run it
  int64_t averaged = 0;     // of how many steps that is
  double last_loss = 0;     // of the last step alone
  std::optional<double> eval_loss, floor;
  double seconds = 0, tokens_per_s = 0;
  int64_t skipped = 0;
  std::string params_hash;
  std::vector<data::SourceCount> sources = {};  // of data.mix: what was seen of each
};

Summary train(Session& session, const TrainOptions& options, Observer& observer);

}  // namespace lockstep::run
