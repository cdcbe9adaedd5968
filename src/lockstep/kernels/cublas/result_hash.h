// A hash of a product's result, to tell whether two algorithms gave the same bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace lockstep::kernels::cuda {

// Adds the words' hash to *hash, in device memory, on the stream.
void add_result_hash(const uint32_t* words, int64_t count, unsigned long long* hash, cudaStream_t stream);

}  // namespace lockstep::kernels::cuda
