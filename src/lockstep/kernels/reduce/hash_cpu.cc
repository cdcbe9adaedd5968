#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/optimizer/optimizer.h"
#include "lockstep/kernels/reduce/hash_word.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

// `flatten`: see elementwise_cpu.cc.
__attribute__((flatten)) uint64_t hash_run(const float* values, int64_t count, uint64_t salt) {
  uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += hash_word(bits_of(values[i]), static_cast<uint64_t>(i), salt);
  return sum;
}

}  // namespace

void hash_chunks(const HashChunks& op, const Launch&) {
  for_items(op.chunk_count, kSerialBelow, [&](int64_t i) {
    const Chunk& chunk = op.chunks[i];
    for (int64_t salt = 0; salt < 2; ++salt) {
      op.hashes[2 * i + salt] = hash_run(op.values + chunk.begin, chunk.count, kHashSalts[salt]);
    }
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
