// Any step of a run again, on one device: from the nearest checkpoint, or from the run's beginning, with the
// bits that the run had.
//
//     Replayer run("runs/first", {});
//     run.nearest(57).step;                              // 50: six steps are trained on the way
//     const SeenStep seen = run.step(57, Look::blocks);  // seen.params_hash, seen.loss, seen.blocks ...
//
// The run folder is only read. How the run was distributed over ranks does not matter (docs/exactness.md).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/replay/seen.h"
#include "lockstep/run/session/session.h"

namespace lockstep::replay {

enum class Look : uint8_t {
  result,  // loss and hash
  blocks,  // and every value, gradient and weight: takes memory for a second copy of the weights
};

// Where a replay can begin.
struct Start {
  int64_t step = 0;        // steps done
  std::string checkpoint;  // its folder; empty: the run's beginning
};

// What metrics.jsonl says of a step; empty where it says nothing.
struct Logged {
  std::string loss_hex, params_hash;
};
std::map<int64_t, Logged> logged_steps(const std::string& run_folder);

class Replayer {
 public:
  // `words`: keys that do not change what is computed, such as run.device=cpu or memory.recompute=full.
  // ConfigError 160: others. `say`: told what is passed over.
  Replayer(std::string run_folder, const std::vector<std::string>& words,
           std::function<void(const std::string&)> say = nullptr);
  ~Replayer();

  // ConfigError 350: there is no such step in the run.
  Start nearest(int64_t step) const;
  // The steps between are trained; `step` counts from 1. Steps in rising order share the way.
  SeenStep step(int64_t step, Look look);

  // What is other than when the run trained, one line each: bits may differ then.
  std::vector<std::string> changes();
  // Why this run's own layout may have had other bits than one device; empty: it had the same.
  std::string inexact() const;
  const recipe::Recipe& recipe() const { return resolved_.recipe; }
  const std::string& folder() const { return folder_; }

 private:
  void go_to(int64_t step);  // that many steps are done then
  void begin_at(const Start& start);
  run::Session& session();

  std::string folder_;
  recipe::Recipe trained_with_;  // config.toml
  recipe::Resolved resolved_;    // for one rank
  std::function<void(const std::string&)> say_;
  std::vector<Start> starts_;  // by rising step
  std::unique_ptr<run::Session> session_;
  int64_t at_ = -1;  // steps that are in the session's weights; -1: something else
};

}  // namespace lockstep::replay
