// How a rank's snapshots lie in the memory that its launcher owns: a page of facts, then two generations of
// equal size. Both sides know it: the rank writes, the launcher may keep a copy elsewhere and bring it back.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::run {

constexpr uint64_t kSnapshotMagic = 0x33304D454D534C;  // "LSMEM03"
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
  std::atomic<int64_t> saved;       // steps of the newest checkpoint on disk that this rank knows of
};
static_assert(sizeof(SnapshotHeader) <= kSnapshotPage);

uint64_t snapshot_checksum(const char* bytes, int64_t size);

// A generation that stands on its own, as another node or a file keeps it.
struct SnapshotCopy {
  uint64_t shape = 0, checksum = 0;
  int64_t commit = 0;
  std::vector<char> bytes;
};

// How far the newest generation in a descriptor is, and the newest checkpoint on disk; 0: none. Takes no look
// at the bytes themselves.
struct SnapshotSteps {
  int64_t newest = 0, saved = 0;
};
SnapshotSteps snapshot_steps(int descriptor);

// The newest whole generation in a descriptor that is newer than `commit`; an empty copy: there is none.
// `which` is set to its place.
SnapshotCopy read_newest(int descriptor, int64_t commit, int& which);
// A generation where it lies.
struct SnapshotView {
  uint64_t shape = 0, checksum = 0;
  int64_t commit = 0, bytes = 0;
  const char* data = nullptr;
};
// Calls for every whole generation in a descriptor; the view is gone afterwards.
void visit_whole(int descriptor, const std::function<void(const SnapshotView&)>& visit);

// Puts generations into a descriptor that holds nothing yet: `fill` brings the bytes of one, and false if it
// cannot. False: they do not fit together, are damaged, or the memory cannot be had; then it holds nothing.
bool write_generations(int descriptor, const std::vector<SnapshotView>& facts,
                       const std::function<bool(size_t k, char* to)>& fill);
bool write_copies(int descriptor, const std::vector<SnapshotCopy>& copies);
// Marks what write_copies() put there as standing on this machine's disk already.
void mark_on_disk(int descriptor);
void mark_replicated(int descriptor, int64_t commit);

}  // namespace lockstep::run
