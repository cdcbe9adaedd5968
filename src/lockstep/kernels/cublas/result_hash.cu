#include "lockstep/kernels/cublas/result_hash.h"

#include "lockstep/device/cuda/check.h"
#include "lockstep/kernels/reduce/hash_word.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256, kBlocks = 1024;

__global__ void result_hash_kernel(const uint32_t* words, int64_t count, unsigned long long* hash) {
  constexpr uint64_t kSalt = kHashSalts[0];
  unsigned long long sum = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += kBlocks * kThreads) {
    sum += hash_word(words[i], static_cast<uint64_t>(i), kSalt);
  }
  atomicAdd(hash, sum);  // integers: any order
}

}  // namespace

void add_result_hash(const uint32_t* words, int64_t count, unsigned long long* hash, cudaStream_t stream) {
  result_hash_kernel<<<kBlocks, kThreads, 0, stream>>>(words, count, hash);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace lockstep::kernels::cuda
