// The board: the shared pages of one group, where its ranks announce what they offer and wait for each other.
//
// Every collective call posts once. A post says what the rank calls and where its data lies: inside the post
// (small), in its arena (peers read it there), or, for memory that is in no arena, piece by piece in its
// bounce buffers. There are two posts of each, used in turn: who posts call n + 2 has met everyone in call n
// + 1, and they came there after they had read call n.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/spin.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/shm/shm_segment.h"
#include "lockstep/comm/shm/shm_signal.h"

namespace lockstep::comm {

constexpr int64_t kInlineBytes = 512;  // beyond it a second barrier costs less than copying
constexpr int64_t kBounceBytes = 1 << 20;
constexpr int64_t kMostEntries = 1 << 16;  // tensors in one post; pages that are not used cost nothing

enum class PostForm : uint32_t { inside, in_arena, in_pieces };

struct PostEntry {
  int64_t offset;  // in the arena, or in the post's own bytes; for pieces, in the stream of all entries
  int64_t bytes;
};

struct alignas(128) Post {
  uint32_t kind;  // Collective
  PostForm form;
  int64_t sequence;
  int64_t bytes, detail;  // what all ranks must agree on, such as the type of a sum, the root of a broadcast
  int64_t entry_count, stream_bytes;
  std::byte inside[kInlineBytes];
  PostEntry entries[kMostEntries];
};

// One direction between two ranks, for send and recv.
struct Channel {
  Signal offered, taken;  // pieces so far
  PostForm form;
  int64_t offset, bytes, sequence;
};

enum class Presence : uint32_t { absent, here, left };

struct alignas(4096) RankPages {
  std::atomic<uint32_t> barriers;  // so far: who is missing
  Signal met;                      // of the first rank's pages: how often anyone has come to a barrier
  std::atomic<Presence> presence;
  SegmentAddress arena;  // once present
  Post posts[2];
  std::byte bounce[2][kBounceBytes];
};

class Board {
 public:
  struct Options {
    std::vector<int> ranks;  // world ranks, for messages
    int rank = 0;            // in the group
    Duration timeout{0};
  };
  static int64_t bytes_for(int size);
  Board(SharedSegment segment, Options options);
  ~Board();  // leaves word that this rank has gone
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(options_.ranks.size()); }
  int world_rank(int q) const { return options_.ranks[static_cast<size_t>(q)]; }
  RankPages& pages(int q) const { return pages_[q]; }
  Channel& channel(int from, int to) const { return channels_[from * size() + to]; }

  void join(const SegmentAddress& arena);  // once, before anything else
  void close_door() { segment_.close_descriptor(); }
  void begin() { deadline_ns_ = 0; }  // of a call: its timeout counts from its first wait
  // Says that this rank is here, and waits for all others. CallFailed names who is missing, and dead if it
  // is.
  void barrier();
  void wait_for(Signal& signal, uint32_t target, int peer);

 private:
  struct Awaited {
    int rank;
    const std::atomic<uint32_t>* came;  // how often so far
  };
  bool reaches(const Signal& signal, uint32_t target);  // while we look on
  // Sleeps until the signal has reached its target, which it does when all of them have come so often.
  struct LongWait {
    Signal& signal;
    uint32_t target;
    std::vector<Awaited> awaited;
    uint32_t times;
  };
  void wait_slowly(const LongWait& wait);
  // Throws CallFailed when one of them cannot come any more, or the deadline has passed.
  void look_after(const LongWait& wait);
  std::string name(int q) const;

  SharedSegment segment_;
  Options options_;
  RankPages* pages_;
  Channel* channels_;
  base::Spin spin_;
  uint32_t barriers_ = 0;
  int64_t deadline_ns_ = 0;
};

}  // namespace lockstep::comm
