// Snapshots of a rank in memory that outlives it: the launcher owns a memfd for each of its ranks and hands
// it down, so that ranks that are started again go on from it without touching a disk.
//
//     MemorySnapshots snapshots(session, descriptor);
//     if (const auto step = snapshots.restore(newest_on_disk)) ... go on from *step ...
//     if (snapshots.due(step)) snapshots.take(step, seconds_of_a_step);
//
// Two generations take turns. A generation counts once its commit word, written last, holds the step; it is
// believed only when the checksum of its bytes is right. What stands in it is what this rank holds, as it
// is: another layout does not find itself in it, and starts from the disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/run/session/session.h"
#include "lockstep/run/shared/snapshot_memory.h"

namespace lockstep::run {

// Steps between snapshots, with "auto": copying takes at most a hundredth of the time, and no more than a
// thousand steps are done again.
int64_t snapshot_interval(double copy_seconds, double step_seconds);

class MemorySnapshots {
 public:
  // Takes the descriptor over and makes it large enough. IoError 560: this machine has too little memory.
  MemorySnapshots(Session& session, int descriptor);
  ~MemorySnapshots();
  MemorySnapshots(const MemorySnapshots&) = delete;
  MemorySnapshots& operator=(const MemorySnapshots&) = delete;

  // Puts back the newest state that all ranks can have, if it has more than `at_least` steps, and says how
  // many. Where every rank holds everything, one that has it is enough: the others get it from there.
  // Collective.
  std::optional<int64_t> restore(int64_t at_least);

  bool due(int64_t step);
  // Everything enqueued has been read back. The first one also decides, with "auto", how often: so that
  // copying stays below 1 % of the time. Collective then.
  void take(int64_t step, double seconds_of_a_step);

  // A checkpoint of so many steps is on disk: the launcher need not keep what is older.
  void saved(int64_t step);
  // Steps of a state that was left here by a run in another layout, and cannot be used in this one; 0: none.
  int64_t of_other_layout() const { return of_other_layout_; }

  int64_t bytes() const { return bytes_; }  // of one generation
  int64_t every() const { return every_; }  // 0: not decided yet

 private:
  struct Part {
    device::Tensor device;
    int64_t offset;
  };
  void map(int descriptor, int sharers);
  char* generation(int which) const;
  std::optional<int64_t> held(int which) const;  // its steps, if it is whole
  void forget_newer_than(int64_t step);
  void load(int which);
  bool copy(int64_t step);  // false: not now
  void share(int root, int which);
  bool replicates() const;
  bool still_under_way(int64_t newest) const;
  void decide_every(double seconds, double seconds_of_a_step);

  Session& session_;
  std::vector<Part> parts_;
  bool whole_ = true;   // every rank holds everything: no tensor or pipeline ranks, no shards
  uint64_t shape_ = 0;  // a hash of what stands in it
  int64_t bytes_ = 0, every_ = 0, decided_at_ = 0, seen_ = 0, of_other_layout_ = 0;
  SnapshotHeader* header_ = nullptr;  // null: another rank of this host keeps it for all
  size_t mapped_ = 0;
};

}  // namespace lockstep::run
