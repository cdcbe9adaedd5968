// What ranks left in the launcher's memory, on disk: RUN/snapshots/rank-R.snapshot.
//
// A launcher that must end while its ranks cannot save writes their snapshots as they are; the next launcher
// of the run reads them back into its ranks' memory before it starts them, and they go on as if they had only
// been started again. Such a file holds one rank of one layout; a checkpoint is for everything else, so the
// files go as soon as one holds as many steps.
//
//     KeptMemory kept(memories, "runs/first");
//     kept.bring_back(first_rank);          // before ranks are started
//     if (!kept.keep(first_rank, 10s)) ...  // the launcher ends, and ranks could not save
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "lockstep/launch/options.h"
#include "lockstep/launch/process/disk_process.h"
#include "lockstep/launch/process/rank_memory.h"

namespace lockstep::launch {

class KeptMemory {
 public:
  // The memories are borrowed. Without a disk process, a thread of this one writes.
  KeptMemory(const RankMemories& memories, std::string run_folder,
             std::shared_ptr<DiskProcess> disk = nullptr)
      : memories_(memories), run_folder_(std::move(run_folder)), disk_(std::move(disk)) {}

  // What an earlier launcher kept of these ranks, put into their memory: steps of the newest, 0: nothing.
  // What is damaged, cut off or of another rank is left alone.
  int64_t bring_back(int first_rank);
  // Both generations of every rank here that has any. A disk that takes longer than `most` does not respond:
  // what is not written when this process ends is left out.
  struct Kept {
    std::string problem;     // empty: all is written
    bool responding = true;  // the disk
  };
  Kept keep(int first_rank, Duration most) const;
  void forget();  // a checkpoint holds more, or the user starts over

 private:
  const RankMemories& memories_;
  std::string run_folder_;
  std::shared_ptr<DiskProcess> disk_;
};

std::string kept_path(const std::string& run_folder, int rank);
// A process without a launcher: into its own memory. False: nothing was kept of this rank.
bool bring_back_memory(int descriptor, const std::string& run_folder, int rank);
void forget_kept_memory(const std::string& run_folder);  // of all ranks

}  // namespace lockstep::launch
