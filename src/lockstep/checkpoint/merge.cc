#include "lockstep/checkpoint/merge.h"

#include <algorithm>

namespace lockstep::checkpoint {
namespace {

// One stored row of the weight: `fixed` are the rank's factors of that row, [rank], `along` the matrix whose
// columns the row runs over, element (k, column) at along[k * by_rank + column * by_column].
struct Row {
  const float* fixed;
  int64_t fixed_step;
  const float* along;
  int64_t by_rank, by_column;
};

}  // namespace

void MergedWeight::add_to(int64_t at, std::span<float> values) const {
  const int64_t columns = transposed ? out : in;
  std::vector<float> sums;
  for (size_t done = 0; done < values.size();) {
    const int64_t row = at / columns, column = at % columns;
    const auto count = std::min<int64_t>(columns - column, static_cast<int64_t>(values.size() - done));
    const Row one = transposed ? Row{a.data() + row, in, b.data(), 1, rank}
                               : Row{b.data() + row * rank, 1, a.data(), in, 1};
    sums.assign(static_cast<size_t>(count), 0.0f);
    for (int64_t k = 0; k < rank; ++k) {
      const float factor = one.fixed[k * one.fixed_step];
      const float* from = one.along + k * one.by_rank + column * one.by_column;
      for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i)] += factor * from[i * one.by_column];
    }
    for (int64_t i = 0; i < count; ++i)
      values[done + static_cast<size_t>(i)] += scale * sums[static_cast<size_t>(i)];
    done += static_cast<size_t>(count);
    at += count;
  }
}

}  // namespace lockstep::checkpoint
