#include "lockstep/kernels/embedding/sort.cuh"

#include <cub/device/device_radix_sort.cuh>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/check.h"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int kAllBits = 32;

int64_t buffer_bytes(int64_t count) { return (count * 4 + kAlignment - 1) / kAlignment * kAlignment; }

int bits_of(int64_t largest_key) {
  int bits = 1;
  while (largest_key >> bits) ++bits;
  return bits;
}

// Without scratch CUB only says how many bytes it wants.
void radix_sort(void* scratch, size_t& scratch_bytes, const SortBuffers& buffers, int64_t count, int bits,
                cudaStream_t stream) {
  CUDA_CHECK(cub::DeviceRadixSort::SortPairs(scratch, scratch_bytes, buffers.keys, buffers.sorted_keys,
                                             buffers.values, buffers.sorted_values, static_cast<int>(count),
                                             0, bits, stream));
}

}  // namespace

int64_t sort_workspace(int64_t count) {
  size_t scratch_bytes = 0;
  radix_sort(nullptr, scratch_bytes, {}, count, kAllBits, nullptr);
  return 4 * buffer_bytes(count) + static_cast<int64_t>(scratch_bytes) + kAlignment;
}

SortBuffers sort_buffers(const Launch& launch, int64_t count) {
  LS_ASSERT(count < int64_t{1} << 31);
  const int64_t bytes = buffer_bytes(count);
  require_workspace(launch, sort_workspace(count), "embedding_backward");
  char* at = static_cast<char*>(launch.workspace);
  return {.keys = reinterpret_cast<uint32_t*>(at),
          .values = reinterpret_cast<int32_t*>(at + bytes),
          .sorted_keys = reinterpret_cast<uint32_t*>(at + 2 * bytes),
          .sorted_values = reinterpret_cast<int32_t*>(at + 3 * bytes),
          .scratch = at + 4 * bytes,
          .scratch_bytes = launch.workspace_bytes - 4 * bytes};
}

void sort_pairs(const SortBuffers& buffers, int64_t count, int64_t largest_key, cudaStream_t stream) {
  size_t scratch_bytes = static_cast<size_t>(buffers.scratch_bytes);
  radix_sort(buffers.scratch, scratch_bytes, buffers, count, bits_of(largest_key), stream);
}

}  // namespace lockstep::kernels::cuda
