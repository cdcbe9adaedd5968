#include <cmath>

#include "lockstep/model/rope.h"

namespace lockstep::model {

namespace {

constexpr double kPi = 3.14159265358979323846;

// Llama-3 stretches the slow rotations by `scaling`, leaves the fast ones, and blends between.
double scaled_frequency(const RopeOptions& o, double frequency) {
  if (o.scaling == 0) return frequency;
  const double context = static_cast<double>(o.original_context);
  const double wavelength = 2 * kPi / frequency;
  if (wavelength > context / o.low_freq) return frequency / o.scaling;
  if (wavelength < context / o.high_freq) return frequency;
  const double blend = (context / wavelength - o.low_freq) / (o.high_freq - o.low_freq);
  return (1 - blend) * frequency / o.scaling + blend * frequency;
}

}  // namespace

void rotate(const Frame& f, const RopeOptions& o, const Tensor& qkv, bool backward) {
  const int64_t width = (o.heads + 2 * o.kv_heads) * o.head_dim;
  for (const PositionedRows& rows : f.slice.rows()) {
    f.kernels->rope({.shape = {qkv.dtype, rows.samples, f.slice.seq_len, o.heads, o.kv_heads, o.head_dim},
                     .qkv = qkv.as<char>() + rows.first_row * width * device::size_of(qkv.dtype),
                     .table = f.buffer("rope").as<float>(),
                     .first_position = rows.position,
                     .backward = backward},
                    f.launch);
  }
}

BufferSpec rope_buffer(const RopeOptions& options) {
  return {"rope", "rope table", DType::f32, {options.positions, options.head_dim}};
}

void fill_rope_table(const RopeOptions& o, float* table) {
  const int64_t half = o.head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(o.head_dim);
    const double frequency = scaled_frequency(o, std::pow(o.theta, -exponent));
    for (int64_t position = 0; position < o.positions; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      table[position * o.head_dim + i] = static_cast<float>(std::cos(angle));
      table[position * o.head_dim + half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace lockstep::model
