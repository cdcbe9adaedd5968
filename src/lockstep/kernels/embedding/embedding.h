// Token (and position) embedding. The backward pass adds rows in token order: no atomics.
#pragma once

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::kernels {

struct Embedding {
  device::DType type = device::DType::f32;
  int64_t samples = 0, seq_len = 0, width = 0, vocab = 0;
  const int32_t* tokens = nullptr;  // [samples, seq_len]
  const void* table = nullptr;      // [vocab, width]
  const void* positions = nullptr;  // [>= first_position + seq_len, width] or null
  int64_t first_position = 0;
  int64_t first_token = 0;  // the token of the table's row 0; tokens outside the table give zeros
  void* out = nullptr;      // [samples * seq_len, width]
  float scale = 1;          // of the table's rows
  const int32_t* row_positions = nullptr;  // [samples * seq_len]: given, where each row stands instead
  const int32_t* begins = nullptr;         // as in Rope: where in its sample a row's document begins
};

struct EmbeddingBackward {
  device::DType type = device::DType::f32;
  int64_t samples = 0, seq_len = 0, width = 0, vocab = 0;
  const int32_t* tokens = nullptr;
  const void* dout = nullptr;       // [samples * seq_len, width]
  float* dtable = nullptr;          // [vocab, width] or null
  float* dpositions = nullptr;      // [position_rows, width] or null
  int64_t position_rows = 0;        // rows that no token stands at get no gradient (written as zero, or kept)
  int64_t first_position = 0;       // of token 0 of every sample
  int64_t first_token = 0;          // as in Embedding
  bool accumulate = false;          // false: gradients are written, zeros included
  float scale = 1;                  // as in Embedding
  const int32_t* begins = nullptr;  // as in Embedding
};

}  // namespace lockstep::kernels
