// Who is told of saves that have ended since, whenever a step has: the observers, the launcher's memory and
// the watch over the notice.
#pragma once

#include <atomic>

#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/saving/memory_snapshot.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/training/recovery.h"
#include "lockstep/training/uploader.h"

namespace lockstep::training {

class SaveNews : public run::Observer {
 public:
  struct Told {
    run::Observer& everyone;
    NoticeWatch& notice;
    run::MemorySnapshots* snapshots;  // null: there are none
    Uploader* uploads;                // null: checkpoint.to is empty
  };
  SaveNews(run::Saver& saver, Told told) : saver_(saver), told_(told) {}
  void stepped(const run::StepReport&) override { tell(); }
  void tell();
  void finish();  // the last save must succeed; how it went is told in any case
  // Waits so long for uploads, or until a signal comes, and tells how they go. Why not all are in the store;
  // empty: they are.
  std::string finish_uploads(double seconds, const std::atomic<int>& signal, int64_t step);

 private:
  void tell_uploads();
  run::Saver& saver_;
  Told told_;
};

}  // namespace lockstep::training
