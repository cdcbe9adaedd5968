// Stable sort of (key, value) pairs on the device, in workspace memory. CUB's radix sort underneath.
#pragma once

#include <cuda_runtime_api.h>

#include "lockstep/kernels/launch.h"

namespace lockstep::kernels::cuda {

// Slices of a workspace of sort_workspace(count) bytes.
struct SortBuffers {
  uint32_t* keys;   // filled by the caller; destroyed
  int32_t* values;  // the same
  uint32_t* sorted_keys;
  int32_t* sorted_values;
  void* scratch;
  int64_t scratch_bytes;
};

int64_t sort_workspace(int64_t count);
SortBuffers sort_buffers(const Launch& launch, int64_t count);  // count < 2^31

// By key, equal keys in the order they came. Keys are at most `largest_key`.
void sort_pairs(const SortBuffers& buffers, int64_t count, int64_t largest_key, cudaStream_t stream);

}  // namespace lockstep::kernels::cuda
