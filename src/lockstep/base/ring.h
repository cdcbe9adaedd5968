// The recorder's ring: what a rank was doing, in a file that outlives it.
//
//     RingWriter ring("runs/first/trace/rank-0.ring", {.rank = 0});
//     const uint64_t ticket = ring.enqueue({.step = 12, .instruction = 3, .op = 9});
//     ring.start(ticket);
//     ring.finish(ticket);
//
// The file is mapped shared, so every stamp is with the kernel the moment it is written: after SIGKILL
// another process still reads the last instruction. Any thread of the process may write: a ticket is one
// atomic addition, and tickets are slots of their own until the ring comes round. Any number of processes
// read without locks; each entry has a version that is odd while the entry is being filled, so a torn read is
// noticed. A stamp costs a clock read, two atomic operations and a few stores: below 50 ns.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/process_birth.h"

namespace lockstep::base {

// An instruction at work. -1 where a field does not apply.
struct RingStamp {
  int64_t step = 0;
  int32_t instruction = -1;  // index in the step program
  uint16_t op = 0;           // program's operation, as a number
  int32_t block = -1;
  int32_t slice = -1;
  int32_t group = -1;     // collectives: which group
  int64_t sequence = -1;  // collectives: how many of the group came before
  int64_t bytes = 0;
};

struct RingEntry {
  enum class State { enqueued, started, finished };
  uint64_t ticket = 0;  // 0, 1, 2, ... in the order of enqueue()
  RingStamp stamp;
  int64_t enqueued_ns = 0, started_ns = 0, finished_ns = 0;  // monotonic_ns(); 0: not yet

  State state() const {
    return finished_ns ? State::finished : started_ns ? State::started : State::enqueued;
  }
};

struct RingOptions {
  int32_t rank = 0;
  uint32_t entries = 4096;  // rounded up to a power of two; older ones are overwritten
};

class RingWriter {
 public:
  // Replaces the file; a process that still maps the old one keeps it. IoError 802.
  RingWriter(const std::string& path, const RingOptions& options);
  ~RingWriter();
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  // Returns its ticket. The mark is dropped when a thread that the others have lapped is still filling its
  // slot.
  uint64_t enqueue(const RingStamp& stamp);
  void start(uint64_t ticket);  // nothing if the entry has been overwritten meanwhile
  void finish(uint64_t ticket);

 private:
  struct Slot;
  struct Header;
  Slot& slot_of(uint64_t ticket);

  Header* header_ = nullptr;
  Slot* slots_ = nullptr;
  uint64_t mask_ = 0;
  std::atomic<uint64_t> next_{0};
  size_t bytes_ = 0;

  friend class RingReader;
};

// Reads through the file, not through a mapping: a ring cut short under the reader is an error, not a crash.
class RingReader {
 public:
  explicit RingReader(const std::string& path);  // DataError 806 if it is not a ring, IoError 801
  ~RingReader();
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;

  int32_t pid() const { return pid_; }
  bool writer_lives() const;  // on this host, and not another process with its number
  int32_t rank() const { return rank_; }
  uint64_t capacity() const { return capacity_; }

  // The entries that stand in the ring, oldest first. Entries that were being written are left out.
  std::vector<RingEntry> entries() const;

 private:
  std::string path_;
  int file_ = -1;
  int32_t pid_ = 0, rank_ = 0;
  ProcessBirth birth_;
  uint64_t capacity_ = 0;
};

}  // namespace lockstep::base
