// Memory that the launcher owns and its ranks inherit, one memfd for each local rank: what a rank leaves in
// it is there for the one that is started in its place.
#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/run/shared/snapshot_memory.h"

namespace lockstep::launch {

class RankMemories {
 public:
  explicit RankMemories(int ranks);  // empty ones; a rank makes its own as large as it needs
  ~RankMemories();
  RankMemories(const RankMemories&) = delete;
  RankMemories& operator=(const RankMemories&) = delete;
  int descriptor(int local_rank) const;  // borrowed; -1: none
  bool used() const;                     // every rank has made its own large enough
  bool used(int local_rank) const;
  run::SnapshotSteps steps() const;  // the furthest of all ranks here

 private:
  std::vector<int> descriptors_;
};

// In a rank: its descriptor, which the caller takes over, or -1 where no launcher of ours gave one.
int rank_memory();
bool under_launcher();                          // one of ours started this process as a rank
bool started_again();                           // its launcher has started ranks of this run before
std::filesystem::file_time_type launched_at();  // when its launcher began; the earliest time if not known

}  // namespace lockstep::launch
