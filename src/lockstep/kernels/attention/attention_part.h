// Attention of some queries against some of the keys, merged into what other keys gave: what context
// parallelism is made of.
//
// A sequence is cut into chunks. Chunk i of the queries meets every chunk j <= i of the keys, itself
// causally, earlier ones whole; the parts may come in any order, and each is merged by its log-sum-exp. The
// running result stays in fp32 until the last part is in. With a window, some queries of a part see none of
// its keys: these keep what they had, or get 0 and a log-sum-exp of -infinity. The same holds where a sample
// has several documents and a query's own begins behind the part's keys. The backward pass goes over the same
// pairs of chunks again with the final log-sum-exp, so that parts do not depend on each other there.
#pragma once

#include "lockstep/kernels/attention/attention.h"

namespace lockstep::kernels {

struct AttentionPartShape {
  device::DType type = device::DType::f32;
  int64_t samples = 0, q_len = 0, kv_len = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = false;                  // q_len == kv_len, and key j counts for query i where j <= i
  int64_t q_stride = 0, kv_stride = 0;  // elements between rows (tokens) of q, and of k and v
  ScoreOptions scores{};
  int64_t distance = 0;     // tokens from key 0 to query 0, for the window; causal: 0
  int64_t documents = 0;    // of AttentionShape; only of whole sequences
  bool kept_apart = false;  // of chunks: the call says where documents begin (PartDocuments)
  float scale() const { return scores.scale_of(head_dim); }
  // The first key that a query of this number sees: kv_len or more where it sees none.
  int64_t first_key(int64_t query) const {
    const int64_t past = scores.window > 0 ? distance + query - scores.window + 1 : 0;
    return past > 0 ? past : 0;
  }
  bool sees_anything() const { return first_key(0) < kv_len; }
  bool window_binds() const { return first_key(q_len - 1) > 0; }
};

// A whole sequence as the only part, where q, k and v lie side by side.
inline AttentionPartShape only_part(const AttentionShape& whole) {
  return {.type = whole.type,
          .samples = whole.samples,
          .q_len = whole.seq_len,
          .kv_len = whole.seq_len,
          .heads = whole.heads,
          .kv_heads = whole.kv_heads,
          .head_dim = whole.head_dim,
          .causal = true,
          .q_stride = whole.qkv_width(),
          .kv_stride = whole.qkv_width(),
          .scores = whole.scores,
          .documents = whole.documents};
}

// Where the documents begin that the queries of a part belong to: they see no key before.
struct PartDocuments {
  const int32_t* begins = nullptr;  // [samples * q_len]: as of Documents; null: each sample is one
  int64_t first_key = 0;            // where in its sample key 0 of the part stands
};

// Throws Bug when the sizes contradict each other.
void require_valid(const AttentionPartShape& shape, const PartDocuments& documents = {});

struct AttentionPart {
  AttentionPartShape shape;
  const void* q = nullptr;  // token t of sample s is row s * q_len + t: [heads * head_dim]
  const void* k = nullptr;  // [kv_heads * head_dim]
  const void* v = nullptr;
  float* out = nullptr;  // [samples * q_len, heads * head_dim]: normalised over what has been merged
  float* lse = nullptr;  // [samples, heads, q_len]
  bool first = false;    // nothing was merged yet: out and lse are written
  PartDocuments documents{};
};

// delta = sum over head_dim of dout * out, once for all parts.
struct AttentionDelta {
  device::DType type = device::DType::f32;
  int64_t samples = 0, q_len = 0, heads = 0, head_dim = 0;
  const void* out = nullptr;   // [samples * q_len, heads * head_dim], the final result in `type`
  const void* dout = nullptr;  // the same
  float* delta = nullptr;      // [samples, heads, q_len]
};

struct AttentionPartBackward {
  AttentionPartShape shape;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* out = nullptr;     // the final result: [samples * q_len, heads * head_dim], in `type`
  const void* dout = nullptr;    // the same
  const float* lse = nullptr;    // final
  const float* delta = nullptr;  // of AttentionDelta
  float* dq = nullptr;           // as out, fp32
  float* dk = nullptr;           // fp32; row stride dkv_stride
  float* dv = nullptr;
  int64_t dkv_stride = 0;
  bool first_q = false, first_kv = false;  // write; otherwise add to what is there
  PartDocuments documents{};
};

}  // namespace lockstep::kernels
