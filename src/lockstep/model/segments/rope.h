// Rotary positions: the table of cosines and sines, stretched to longer contexts when asked, as transformers
// does it. dynamic and longrope depend on how long the sequence is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/model/block.h"

namespace lockstep::model {

struct RopeOptions {
  int64_t heads = 0, kv_heads = 0, head_dim = 0, positions = 0;
  double theta = 10000;
  double scaling = 0;           // factor; 0: not stretched
  std::string type = "llama3";  // llama3, linear, yarn, dynamic, longrope
  double low_freq = 1, high_freq = 4;
  bool whole_limits = true;  // yarn: the rotations it blends between are rounded outwards
  int64_t original_context = 8192;
  double attention = 0;                                 // yarn, longrope; 0: their authors' choice
  std::vector<double> short_factors{}, long_factors{};  // longrope: of each rotation
  int64_t rotary_dim = 0;            // the first so many columns of a head are turned; 0: all
  std::string table = "rope table";  // of its own for each kind of layer that turns otherwise
  bool documents = false;            // positions begin again at each document of a sample (Frame::documents)
  int64_t turned() const { return rotary_dim > 0 ? rotary_dim : head_dim; }
};

// "1.0,1.5": the numbers, or none where one is not a number above 0.
std::vector<double> rope_factors(const std::string& text);
bool depends_on_length(const RopeOptions& options);

// [positions, turned()]: half of that cosines, then as many sines, for sequences of `length` tokens. A row
// beyond `length` is that of the sequence which ends there: so transformers generates with a cache.
void fill_rope_table(const RopeOptions& options, int64_t length, float* table);
// q and k of `qkv`, at the positions of this rank's tokens, in place; backward: the other way round.
void rotate(const Frame& f, const RopeOptions& options, const Tensor& qkv, bool backward);
BufferSpec rope_buffer(const RopeOptions& options);  // shared by all segments whose options name the same

}  // namespace lockstep::model
