// What forward and backward of attention in parts share on the CPU: blocks of keys, and per-thread scratch.
#pragma once

#include "lockstep/kernels/attention/attention_cpu.h"
#include "lockstep/kernels/attention/attention_part.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {

// Keys met at a time: their scores stay in the second-level cache. A multiple of query_rows, so that no row
// of a causal run meets a block of which it sees nothing.
constexpr int64_t kKeyBlock = 512;

LS_INLINE int64_t query_rows(const AttentionPartShape& shape) { return query_rows(shape.q_len); }

// Scores and their gradients of one run of queries; keys, values, queries and dout of it widened.
LS_INLINE int64_t part_scratch_floats(const AttentionPartShape& shape) {
  const int64_t rows = query_rows(shape), dim = shape.head_dim;
  const int64_t widened = 2 * round_up(kKeyBlock * dim, kLanes) + 2 * round_up(rows * dim, kLanes);
  return 2 * rows * kKeyBlock + (shape.type == device::DType::f32 ? 0 : widened);
}

LS_INLINE int part_threads(const AttentionPartShape& shape, const Launch& launch) {
  if (shape.samples * shape.heads * shape.q_len * shape.kv_len < kSerialBelow) return 1;
  return static_cast<int>(
      smaller(launch.workspace_bytes / (part_scratch_floats(shape) * 4), device::thread_count()));
}

// Keys [first, first + count) of one head, and their values.
struct KeyBlock {
  int64_t first, count;
  Matrix k, v;
};

// The block from key number `key` on, at k and v, of a head whose keys end at number `end`.
template <class T>
LS_INLINE KeyBlock read_keys(const AttentionPartShape& shape, const T* k, const T* v, int64_t key,
                             int64_t end, Scratch& scratch) {
  const int64_t count = smaller(kKeyBlock, end - key), dim = shape.head_dim;
  return {key, count, read_head(k, shape.kv_stride, count, dim, scratch),
          read_head(v, shape.kv_stride, count, dim, scratch)};
}

// How many keys of the block lie before a query or at it.
LS_INLINE int64_t keys_up_to(const AttentionPartShape& shape, int64_t query, const KeyBlock& block) {
  return shape.causal ? smaller(block.count, query + 1 - block.first) : block.count;
}

// The first key that a query of one sample sees, of its window and of its document. Later queries never see
// earlier ones.
class FirstKeys {
 public:
  LS_INLINE FirstKeys(const AttentionPartShape& shape, const PartDocuments& documents, int64_t sample)
      : shape_(shape),
        begins_(documents.begins == nullptr ? nullptr : documents.begins + sample * shape.q_len),
        first_key_(documents.first_key) {}
  LS_INLINE int64_t operator()(int64_t query) const {
    const int64_t of_window = shape_.first_key(query);
    return begins_ == nullptr ? of_window : larger(of_window, begins_[query] - first_key_);
  }

 private:
  const AttentionPartShape& shape_;
  const int32_t* begins_;
  int64_t first_key_;
};

// The keys of the block that a query sees, of which there may be none.
LS_INLINE SeenKeys seen_keys(const AttentionPartShape& shape, const FirstKeys& first_keys, int64_t query,
                             const KeyBlock& block) {
  const int64_t end = keys_up_to(shape, query, block);
  return {smaller(end, larger(0, first_keys(query) - block.first)), end};
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
