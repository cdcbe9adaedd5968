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
  if (wavelength < context / o.high_freq) return frequency;
  if (wavelength > context / o.low_freq) return frequency / o.scaling;
  const double blend = (context / wavelength - o.low_freq) / (o.high_freq - o.low_freq);
  return (1 - blend) * frequency / o.scaling + blend * frequency;
}

}  // namespace

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
