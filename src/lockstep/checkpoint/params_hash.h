// params_hash from the bytes of a save: each rank hashes what it writes, and the sums of all ranks are added.
//
// A chunk's hash is a sum over its words (kernels/reduce/hash_word.h), so that it does not matter who holds
// which of them. The masters are not read a second time on the device, and training does not wait for it.
// Loading hashes what it reads in the same way, while it is at hand.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/saving/piece.h"

namespace lockstep::checkpoint {

// The two sums of every chunk of every weight, in order, as 32 hex digits.
std::string fold_hashes(std::span<const uint64_t> sums);

class HashSums {
 public:
  using Chunk = std::pair<int64_t, int64_t>;  // tensor (a number of the caller's), chunk of it
  struct Sums {
    uint64_t of[2] = {0, 0};
  };
  // Elements from `at` on of a tensor's canonical order.
  void add(int64_t tensor, int64_t at, std::span<const float> values);
  void merge(const Chunk& chunk, const Sums& sums);
  void merge(const HashSums& other);
  const std::map<Chunk, Sums>& sums() const { return sums_; }
  std::string finish(const std::vector<Whole>& tensors) const;  // of the weights among them

 private:
  std::map<Chunk, Sums> sums_;
};

}  // namespace lockstep::checkpoint
