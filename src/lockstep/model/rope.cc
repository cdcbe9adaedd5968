#include <algorithm>
#include <cmath>

#include "lockstep/model/rope.h"

namespace lockstep::model {

namespace {

constexpr double kPi = 3.14159265358979323846;

// Llama-3 stretches the slow rotations by `scaling`, leaves the fast ones, and blends between by wavelength.
double llama3_frequency(const RopeOptions& o, double frequency) {
  const double context = static_cast<double>(o.original_context);
  const double wavelength = 2 * kPi / frequency;
  if (wavelength > context / o.low_freq) return frequency / o.scaling;
  if (wavelength < context / o.high_freq) return frequency;
  const double blend = (context / wavelength - o.low_freq) / (o.high_freq - o.low_freq);
  return (1 - blend) * frequency / o.scaling + blend * frequency;
}

// YaRN blends by the rotation's number, between the two that turn low_freq and high_freq times in the
// context.
double yarn_frequency(const RopeOptions& o, int64_t i, double frequency) {
  const auto number_of = [&](double turns) {
    return static_cast<double>(o.head_dim) *
           std::log(static_cast<double>(o.original_context) / (turns * 2 * kPi)) / (2 * std::log(o.theta));
  };
  const double first = std::max(std::floor(number_of(o.high_freq)), 0.0);
  const double last = std::min(std::ceil(number_of(o.low_freq)), static_cast<double>(o.head_dim - 1));
  const double range = first == last ? 0.001 : last - first;
  const double stretched = std::clamp((static_cast<double>(i) - first) / range, 0.0, 1.0);
  return stretched * frequency / o.scaling + (1 - stretched) * frequency;
}

double scaled_frequency(const RopeOptions& o, int64_t i, double frequency) {
  if (o.scaling == 0) return frequency;
  if (o.type == "linear") return frequency / o.scaling;
  return o.type == "yarn" ? yarn_frequency(o, i, frequency) : llama3_frequency(o, frequency);
}

// Stretched positions stand closer, so YaRN makes attention a little sharper.
double amplitude(const RopeOptions& o) {
  if (o.scaling == 0 || o.type != "yarn") return 1;
  if (o.attention > 0) return o.attention;
  return o.scaling > 1 ? 1 + 0.1 * std::log(o.scaling) : 1;
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
  const double height = amplitude(o);
  for (int64_t i = 0; i < half; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(o.head_dim);
    const double frequency = scaled_frequency(o, i, std::pow(o.theta, -exponent));
    for (int64_t position = 0; position < o.positions; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      table[position * o.head_dim + i] = static_cast<float>(height * std::cos(angle));
      table[position * o.head_dim + half + i] = static_cast<float>(height * std::sin(angle));
    }
  }
}

}  // namespace lockstep::model
