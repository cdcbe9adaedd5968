// The arena of one rank in shared memory, and the peers' arenas as this process sees them.
//
// An arena is one sparse segment as large as the machine's memory, so it never moves and peers' mappings
// never go stale. What is freed goes back to the kernel. Groups of one process share the mappings of peers.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/comm/engine.h"
#include "lockstep/comm/shm/shm_segment.h"

namespace lockstep::comm {

// Another rank's arena. Mapped as far as it was needed, in powers of two; longer mappings are added beside
// the old ones, which stay valid until the end: somebody may hold views into them.
class PeerArena {
 public:
  explicit PeerArena(const SegmentAddress& address) : address_(address) {}
  std::byte* at(int64_t offset, int64_t bytes);  // CommError 525

 private:
  SegmentAddress address_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<SharedSegment>> mappings_;
  std::atomic<const SharedSegment*> longest_{nullptr};
};

class ShmArena final : public SharedArena {
 public:
  ShmArena();  // CommError 525 where the kernel has no memfd
  void* allocate(int64_t bytes) override;
  void free(void* memory) override;

  const SegmentAddress& address() const { return segment_.address(); }
  // Where in the arena this memory lies; nothing when it is elsewhere.
  std::optional<int64_t> offset_of(const void* memory, int64_t bytes) const;
  PeerArena& peer(const SegmentAddress& address);

 private:
  SharedSegment segment_;
  std::mutex mutex_;
  std::map<int64_t, int64_t> used_, gaps_;  // offset to bytes
  std::vector<std::pair<SegmentAddress, std::unique_ptr<PeerArena>>> peers_;
};

}  // namespace lockstep::comm
