// How a rank's snapshots lie in the memory that its launcher owns: a page of facts, then two generations of
// equal size. Both sides know it: the rank writes, the launcher may keep a copy elsewhere and bring it back.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::run {

constexpr uint64_t kSnapshotMagic = 0x32304D454D534C;  // "LSMEM02"
constexpr int64_t kSnapshotPage = 4096;

struct SnapshotHeader {
  uint64_t magic, shape;  // shape: a hash of what stands in a generation
  int64_t bytes;          // of a generation
  int64_t shares;         // not 0: other ranks hold other parts, so that a copy elsewhere is worth having
  struct Generation {
    std::atomic<int64_t> commit;  // steps + 1; 0: nothing, or being written
    uint64_t checksum;
  } generations[2];
  std::atomic<int64_t> replicated;  // the newest commit that another node has a copy of
};
static_assert(sizeof(SnapshotHeader) <= kSnapshotPage);

uint64_t snapshot_checksum(const char* bytes, int64_t size);

// A generation that stands on its own, as another node keeps it.
struct SnapshotCopy {
  uint64_t shape = 0, checksum = 0;
  int64_t commit = 0;
  std::vector<char> bytes;
};

// The newest whole generation in a descriptor that is newer than `commit`; an empty copy: there is none.
// `which` is set to its place.
SnapshotCopy read_newest(int descriptor, int64_t commit, int& which);
// Puts copies into a descriptor that holds nothing yet. False: they do not fit together, are damaged, or the
// memory cannot be had.
bool write_copies(int descriptor, const std::vector<SnapshotCopy>& copies);
void mark_replicated(int descriptor, int64_t commit);

}  // namespace lockstep::run
