// What was seen of one step while it ran again: numbers and hashes of every value that blocks gave each
// other, of gradients and of weights; and where two such steps begin to differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/device/tensor.h"

namespace lockstep::replay {

// Of one tensor, or of several together. The hash tells whether bits are the same, the rest how far apart
// values are.
struct Numbers {
  int64_t count = 0;
  int64_t nonfinite = 0;
  double squares = 0;  // sum over the finite values
  double largest = 0;  // absolute, of the finite values
  uint64_t hash = 0;
  double rms() const;
  double norm() const;
  void add(const Numbers& other);
};
// Values in host memory; types other than fp32, bf16 and fp16 have a hash alone.
Numbers numbers_of(const void* values, device::DType type, int64_t count);

// One value that a segment gave.
struct SeenValue {
  std::string pass;  // "forward"
  int slice = 0;
  std::string block, segment, value;  // "layer 3", "attention", "context"
  Numbers numbers;
  std::string place() const;  // "forward, slice 0, layer 3 (attention): context"
  bool same_place(const SeenValue& other) const;
};

struct SeenBlock {
  std::string name;
  Numbers before, after;  // weights
  Numbers gradient;       // of the step, unscaled and before clipping
  Numbers update;         // after - before, where that was asked for
  Numbers out;            // what its last segment gave going forward, all slices
};

struct SeenStep {
  int64_t step = 0;  // counted from 1
  double loss = 0, grad_norm = 0;
  bool applied = true;
  std::string params_hash;
  uint64_t batch_hash = 0;
  std::vector<SeenValue> values;  // in the order of the program; empty: not asked for
  std::vector<SeenBlock> blocks;
};

// Where a step stopped being finite, slice by slice; empty: nowhere.
std::vector<const SeenValue*> first_nonfinite(const SeenStep& step);

// Which of the two differs where: the first place, in the order in which a step computes, and every block
// that differs.
struct Difference {
  bool same = true;
  std::string first;                // one sentence; empty: none
  std::vector<std::string> blocks;  // whose weights, gradients or values differ, in the model's order
};
Difference difference_of(const SeenStep& one, const SeenStep& other);

}  // namespace lockstep::replay
