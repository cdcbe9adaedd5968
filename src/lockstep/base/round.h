// Whole numbers rounded to a multiple.
#pragma once

#include <cstdint>

namespace lockstep::base {

// The least multiple of `step` that is not below `n`; n >= 0, step > 0.
constexpr int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
// How many of `size` it takes to hold `n`.
constexpr int64_t divide_up(int64_t n, int64_t size) { return (n + size - 1) / size; }

}  // namespace lockstep::base
