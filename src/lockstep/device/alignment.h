// Bytes to which device memory is aligned: allocations, buffers in an arena, tensors that an engine stages.
#pragma once

#include <cstdint>

namespace lockstep::device {

constexpr int64_t kAlignment = 256;

}  // namespace lockstep::device
