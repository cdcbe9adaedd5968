// Rotary positions: the table of cosines and sines, stretched to longer contexts when asked.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/model/block.h"

namespace lockstep::model {

struct RopeOptions {
  int64_t heads = 0, kv_heads = 0, head_dim = 0, positions = 0;
  double theta = 10000;
  double scaling = 0;           // factor; 0: not stretched
  std::string type = "llama3";  // llama3, linear, yarn
  double low_freq = 1, high_freq = 4;
  int64_t original_context = 8192;
  double attention = 0;  // yarn; 0: its authors' choice
};

// [positions, head_dim]: head_dim / 2 cosines, then as many sines.
void fill_rope_table(const RopeOptions& options, float* table);
// q and k of `qkv`, at the positions of this rank's tokens, in place; backward: the other way round.
void rotate(const Frame& f, const RopeOptions& options, const Tensor& qkv, bool backward);
BufferSpec rope_buffer(const RopeOptions& options);  // shared by every segment that has the same key, "rope"

}  // namespace lockstep::model
