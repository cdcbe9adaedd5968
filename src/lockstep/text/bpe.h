// Byte-pair encoding: which neighbours join, in which order, and the joining itself.
//
// A PairTable says of two tokens whether they join, to which, and at what rank. merge_pairs() joins the pair
// of the lowest rank, the leftmost of equals, until none is left: exactly, in O(n^2) with a tiny constant for
// words and in O(n log n) with a heap for anything longer, so that a megabyte without a space is no trap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::text {

class PairTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Pair {
    uint64_t key;
    uint32_t rank;  // kNone: they do not join
    int32_t joined;
  };

  explicit PairTable(size_t expected = 0);
  void add(int32_t left, int32_t right, uint32_t rank, int32_t joined);      // the first that is added stays
  void replace(int32_t left, int32_t right, uint32_t rank, int32_t joined);  // the last one does

  const Pair& find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = place_of(key);; at = (at + 1) & mask_) {
      if (pairs_[at].key == key || pairs_[at].key == kEmpty) return pairs_[at];
    }
  }
  size_t size() const { return size_; }
  uint64_t hash() const;  // whatever the order they were added in

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t place_of(uint64_t key) const { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_); }
  void grow();

  std::vector<Pair> pairs_;
  size_t size_ = 0, mask_ = 0;
  int shift_ = 0;
};

// What joining needs beside the tokens; kept by who joins often.
struct MergeSpace {
  std::vector<uint32_t> ranks;  // short words: of each pair
  std::vector<int32_t> joined;
  std::vector<uint32_t> before, after;  // long ones: a list
  std::vector<uint64_t> heap;
};

// Joins in place: `tokens` is what is left.
void merge_pairs(const PairTable& table, std::vector<int32_t>& tokens, MergeSpace& space);

}  // namespace lockstep::text
