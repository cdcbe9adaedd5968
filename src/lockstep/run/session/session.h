// A session: a plan with its memory, its weights, its ranks and the executor of its step.
//
//     Session session(make_plan(recipe::read_recipe({.file = "first.toml"}), {}));   // allocates, sets first
//     values train(session, {...});
#pragma once

#include <memory>

#include "lockstep/checkpoint/usable.h"
#include "lockstep/data/documents/references.h"
#include "lockstep/run/executor/executor.h"
#include "lockstep/run/executor/memory.h"
#include "lockstep/run/executor/ranks.h"
#include "lockstep/run/session/parameters.h"
#include "lockstep/run/session/session_plan.h"

namespace lockstep::run {

class Session {
 public:
  // RunError 420 with a report when the device refuses the memory. `ranks` must outlive the session; null:
  // one rank.
  explicit Session(Plan plan, Ranks* ranks = nullptr, base::RingWriter* ring = nullptr);
  ~Session();
  Plan plan;
  Ranks* ranks;
  base::RingWriter* ring;

 private:
  std::unique_ptr<Ranks> alone_;
  // Several ranks on GPUs. They outlive the executor, whose end waits for the device.
  std::unique_ptr<comm::DeviceMarks> marks_;
  std::unique_ptr<comm::CallWatch> watch_;

 public:
  comm::CallWatch* watch() const { return watch_.get(); }
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Executor> executor;
  checkpoint::Taken weights_from;  // with model.from: the folder they were read from
  checkpoint::Taken adapter_from;  // with tune.adapter: the folder of the adapter
  data::References references;     // with tune.loss = dpo, once they are known (run/loop/references.h)
  // Adapters on a model that has a folder of its own: checkpoints hold what is trained and name that folder.
  bool saves_adapter() const;
};

// What a ring's numbers mean in this session (watch/recorder.h).
watch::RecordedNames recorded_names(const Session& session);

// How every executor of a session is made.
Executor::Options executor_options(const Session& session);

}  // namespace lockstep::run
