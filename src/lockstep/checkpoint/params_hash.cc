#include "lockstep/checkpoint/params_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "lockstep/base/round.h"
#include "lockstep/kernels/optimizer/optimizer.h"
#include "lockstep/kernels/reduce/hash_word.h"

namespace lockstep::checkpoint {
namespace {

using kernels::kChunk;

inline __attribute__((always_inline)) void add_words(std::span<const float> values, uint64_t first,
                                                     uint64_t* sums) {
  uint64_t one = 0, other = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    const auto word = std::bit_cast<uint32_t>(values[k]);
    one += kernels::hash_word(word, first + k, kernels::kHashSalts[0]);
    other += kernels::hash_word(word, first + k, kernels::kHashSalts[1]);
  }
  sums[0] += one, sums[1] += other;
}

// Products of 64 bits, which vectors have from AVX-512 on.
#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target("arch=x86-64-v4"), optimize("O3"))) void add_words_v4(std::span<const float> values,
                                                                            uint64_t first, uint64_t* sums) {
  add_words(values, first, sums);
}
bool has_v4() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#else
void add_words_v4(std::span<const float> values, uint64_t first, uint64_t* sums) {
  add_words(values, first, sums);
}
bool has_v4() { return false; }
#endif

HashSums::Sums sums_of(int64_t first, std::span<const float> values) {
  HashSums::Sums sums;
  static const bool fast = has_v4();
  (fast ? add_words_v4 : add_words)(values, static_cast<uint64_t>(first), sums.of);
  return sums;
}

}  // namespace

std::string fold_hashes(std::span<const uint64_t> sums) {
  uint64_t high = 0x6A09E667F3BCC908ull, low = 0xBB67AE8584CAA73Bull;
  for (size_t k = 0; k < sums.size(); k += 2) {
    high = base::mix64(high ^ sums[k]) + 0x9E3779B97F4A7C15ull;
    low = base::mix64(low ^ sums[k + 1]) + 0xC2B2AE3D27D4EB4Full;
  }
  return fmt::format("{:016x}{:016x}", high, low);
}

void HashSums::add(int64_t tensor, int64_t at, std::span<const float> values) {
  while (!values.empty()) {
    const int64_t first = at % kChunk;
    const int64_t count = std::min(kChunk - first, static_cast<int64_t>(values.size()));
    merge({tensor, at / kChunk}, sums_of(first, values.first(static_cast<size_t>(count))));
    values = values.subspan(static_cast<size_t>(count));
    at += count;
  }
}

void HashSums::merge(const Chunk& chunk, const Sums& sums) {
  Sums& to = sums_[chunk];
  to.of[0] += sums.of[0];
  to.of[1] += sums.of[1];
}

void HashSums::merge(const HashSums& other) {
  for (const auto& [chunk, sums] : other.sums_) merge(chunk, sums);
}

std::string HashSums::finish(const std::vector<Whole>& tensors) const {
  std::vector<uint64_t> all;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (tensors[t].kind != Kind::weight) continue;
    const int64_t chunks = base::divide_up(tensors[t].shape.numel(), kChunk);
    for (int64_t c = 0; c < chunks; ++c) {
      const auto found = sums_.find({static_cast<int64_t>(t), c});
      for (size_t k = 0; k < 2; ++k) all.push_back(found == sums_.end() ? 0 : found->second.of[k]);
    }
  }
  return fold_hashes(all);
}

}  // namespace lockstep::checkpoint
