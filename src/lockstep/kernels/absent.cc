#include "lockstep/kernels/absent.h"

#include <algorithm>

#include "lockstep/base/round.h"
#include "lockstep/kernels/attention/attention_choice.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kFloat = 4, kAlignment = 256, kTile = 128;
constexpr int64_t kProducts = 32 << 20;  // cuBLASLt's, whatever the product

int64_t aligned(int64_t bytes) { return base::round_up(bytes, kAlignment); }

// FlashAttention's backward pass: sums of dq, and of dk and dv where query heads share them, in fp32; two
// numbers for each query.
int64_t flash_bytes(const AttentionPartShape& s) {
  const int64_t rows = s.samples * s.heads * base::round_up(s.q_len, kTile);
  const int64_t key_rows =
      s.heads == s.kv_heads ? 0 : s.samples * s.kv_heads * base::round_up(s.kv_len, kTile);
  return aligned(rows * s.head_dim * kFloat) + 2 * aligned(rows * kFloat) +
         2 * aligned(key_rows * s.head_dim * kFloat);
}

// cuDNN's deterministic backward pass: dq in fp32, and again for each block of keys, as long as that is not
// too much.
int64_t cudnn_bytes(const AttentionPartShape& s) {
  constexpr int64_t kMost = 1 << 30, kBlock = 256;
  const int64_t dq = s.samples * s.heads * s.q_len * s.head_dim * kFloat;
  return dq + std::min(kMost, dq * std::max<int64_t>(1, s.kv_len / kBlock));
}

int64_t backward_bytes(const AttentionPartShape& s) {
  return flash_backward_is_faster(s) ? flash_bytes(s) : cudnn_bytes(s);
}

int64_t attention_workspace(const AttentionShape& shape) { return backward_bytes(only_part(shape)); }

// What a part gives lies behind that until it is merged.
int64_t attention_part_workspace(const AttentionPartShape& s) {
  const int64_t element = device::size_of(s.type);
  const int64_t out = aligned(s.samples * s.q_len * s.heads * s.head_dim * element);
  const int64_t gradients = aligned(s.samples * s.kv_len * 2 * s.kv_heads * s.head_dim * element);
  return std::max(backward_bytes(s) + out + gradients, out + aligned(s.samples * s.q_len * s.heads * kFloat));
}

// Rows of windows of 32 tokens, keys and values before and after they are sorted, and the sort's own.
int64_t embedding_workspace(int64_t tokens, int64_t width) {
  constexpr int64_t kWindow = 32, kSort = 1 << 20;
  return aligned(2 * base::divide_up(tokens, kWindow) * width * kFloat) + 4 * aligned(tokens * kFloat) +
         kSort;
}

Kernels make() {
  Kernels table;
  table.gemm_workspace = [](const Gemm&) { return kProducts; };
  table.fp8_gemm_workspace = [](const Fp8Gemm&) { return kProducts; };
  table.attention_workspace = attention_workspace;
  table.attention_part_workspace = attention_part_workspace;
  table.embedding_workspace = embedding_workspace;
  table.adds_own_sums = true;
  table.attention_engine = [](const AttentionShape&) { return std::string("not here"); };
  table.attention_part_engine = [](const AttentionPartShape&) { return std::string("not here"); };
  return table;
}

}  // namespace

const Kernels& absent_cuda_kernels() {
  static const Kernels table = make();
  return table;
}

}  // namespace lockstep::kernels
