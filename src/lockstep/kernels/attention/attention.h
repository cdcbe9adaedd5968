// Causal attention on packed QKV, with grouped key and value heads, and rotary embedding in place.
//
// A row of qkv is one token: [heads * dim of q | kv_heads * dim of k | kv_heads * dim of v], just as the
// projection wrote it. Rows are sample-major: token t of sample s is row s * seq_len + t.
#pragma once

#include <cmath>
#include <compare>

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

inline float attention_scale(int64_t head_dim) { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }

// What is done to the scores before the softmax; zeros: what the first transformers did.
//
//     score = scale * q k;  score = softcap * tanh(score / softcap);  keys outside the window do not count
struct ScoreOptions {
  int64_t window = 0;  // a query sees the last so many keys, its own among them; 0: all up to its own
  float softcap = 0;   // 0: none
  float scale = 0;     // 0: 1 / sqrt(head_dim)
  float scale_of(int64_t head_dim) const { return scale > 0 ? scale : attention_scale(head_dim); }
  auto operator<=>(const ScoreOptions&) const = default;
};

// Samples of several documents that do not see each other (data.pack), in memory that the kernel reads. The
// last of a sample is its padding.
struct Documents {
  const int32_t* begins = nullptr;   // [rows]: where in its sample the document of a row begins
  const int32_t* offsets = nullptr;  // [shape.documents + 1]: their first rows; from the last on, rows()
};
// A sample has at most so many, so that offsets and workspace can be made for every batch.
constexpr int64_t most_documents(int64_t seq_len) { return seq_len > 32 * 32 ? seq_len / 32 : 32; }

struct AttentionShape {
  device::DType type = device::DType::f32;
  int64_t samples = 0, seq_len = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  ScoreOptions scores{};
  int64_t documents = 0;  // of all samples, at most; 0: each sample is one, and nobody says so
  int64_t rows() const { return samples * seq_len; }
  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  float scale() const { return scores.scale_of(head_dim); }
  // The first key that a query of this number sees.
  int64_t first_key(int64_t query) const {
    return scores.window > 0 && query >= scores.window ? query - scores.window + 1 : 0;
  }
};

struct AttentionForward {
  AttentionShape shape;
  const void* qkv = nullptr;  // [rows, qkv_width]
  void* out = nullptr;        // [rows, heads * head_dim]
  // Log of the sum of exponentials of a row's scores: [samples, heads, seq_len]. Of documents, whoever
  // computes forward chooses the order, and backward knows it.
  float* lse = nullptr;
  Documents documents{};
};

struct AttentionBackward {
  AttentionShape shape;
  const void* qkv = nullptr;
  const void* out = nullptr;
  const void* dout = nullptr;
  const float* lse = nullptr;
  void* dqkv = nullptr;  // [rows, qkv_width], every element written
  Documents documents{};
};

// New tokens against cached keys and values: what `generate` uses. Each row of qkv is one token of some text
// (slot) at some position: one of each text, many of one, or any mixture. All rows' keys and values are put
// into the cache first, then each row attends to its slot's [0, position]. CPU and CUDA.
struct AttentionDecode {
  AttentionShape shape;                // samples: rows; seq_len is ignored
  int64_t slots = 0;                   // texts that the cache holds
  int64_t capacity = 0;                // tokens of each
  const int32_t* slot_of = nullptr;    // [rows], below `slots`
  const int32_t* positions = nullptr;  // [rows], below `capacity`
  const void* qkv = nullptr;           // [rows, qkv_width]
  void* keys = nullptr;                // [slots, capacity, kv_heads * head_dim]
  void* values = nullptr;
  void* out = nullptr;  // [rows, heads * head_dim]
};

// Rows of one text with consecutive positions are handled this many at a time on the CPU, against runs of
// keys.
constexpr int64_t kDecodeQueries = 32, kDecodeKeys = 256;
// Scratch of AttentionDecode on the CPU for so many threads, in bytes.
constexpr int64_t attention_decode_workspace(int64_t head_dim, int64_t threads) {
  const int64_t dim = (head_dim + 15) / 16 * 16;
  return threads * 4 *
         (2 * kDecodeQueries * dim + kDecodeQueries * (kDecodeKeys + 32) + 2 * kDecodeKeys * dim);
}

// Rotary embedding of q and k inside qkv, in place; halves are rotated against each other (Hugging
// Face's convention). backward rotates the other way.
struct Rope {
  AttentionShape shape;
  void* qkv = nullptr;
  const float* table = nullptr;  // [positions, turned()]: half of that cosines, then as many sines
  int64_t first_position = 0;    // of row 0 of every sample
  bool backward = false;
  int64_t rotary_dim = 0;                  // only the first so many columns of a head are turned; 0: all
  const int32_t* row_positions = nullptr;  // [rows]: given, it says where each row stands instead
  const int32_t* begins = nullptr;         // of Documents: given, positions are counted from there
  int64_t turned() const { return rotary_dim > 0 ? rotary_dim : shape.head_dim; }
};

}  // namespace lockstep::kernels
