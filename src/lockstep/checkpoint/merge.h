// W + scale * B A: an adapter's product added to some elements of the weight that it belongs to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::checkpoint {

struct MergedWeight {
  int64_t in = 0, out = 0, rank = 0;
  bool transposed = false;  // the weight is [in, out]
  float scale = 1;
  std::vector<float> a, b;  // [rank, in], [out, rank]

  // Elements [at, at + values.size()) of the weight as it is stored. Sums in fp32, over the rank in order.
  void add_to(int64_t at, std::span<float> values) const;
};

}  // namespace lockstep::checkpoint
