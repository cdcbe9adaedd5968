// Which documents share a sample: best fit, in an order that a seed gives.
//
// A document goes where it leaves the least space, or begins a sample of its own. The order is a keyed
// permutation, so which documents meet is random but the same on every rank and after every restart; it does
// not change from epoch to epoch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

class Packing {
 public:
  struct Room {
    int64_t tokens = 0, documents = 0;  // of a sample, at most
  };
  // Of documents with these lengths, none longer than the room.
  Packing(std::span<const int64_t> lengths, const Room& room, uint64_t seed);
  int64_t samples() const { return static_cast<int64_t>(ends_.size()); }
  std::span<const int64_t> documents(int64_t sample) const;  // in the order in which they lie there

 private:
  std::vector<int64_t> documents_, ends_;
};

}  // namespace lockstep::data
