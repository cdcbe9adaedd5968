#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lockstep/model/segments/rope.h"

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
    return static_cast<double>(o.turned()) *
           std::log(static_cast<double>(o.original_context) / (turns * 2 * kPi)) / (2 * std::log(o.theta));
  };
  const double fast = number_of(o.high_freq), slow = number_of(o.low_freq);
  const double first = std::max(o.whole_limits ? std::floor(fast) : fast, 0.0);
  const double last = std::min(o.whole_limits ? std::ceil(slow) : slow, static_cast<double>(o.turned() - 1));
  const double range = first == last ? 0.001 : last - first;
  const double stretched = std::clamp((static_cast<double>(i) - first) / range, 0.0, 1.0);
  return stretched * frequency / o.scaling + (1 - stretched) * frequency;
}

// Dynamic NTK raises the base for sequences longer than the model was made for.
double base_of(const RopeOptions& o, int64_t length) {
  if (o.scaling == 0 || o.type != "dynamic" || length <= o.original_context) return o.theta;
  const double dim = static_cast<double>(o.turned());
  const double stretch = o.scaling * static_cast<double>(length) / static_cast<double>(o.original_context);
  return o.theta * std::pow(stretch - (o.scaling - 1), dim / (dim - 2));
}

double scaled_frequency(const RopeOptions& o, int64_t i, int64_t length) {
  const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(o.turned());
  const double frequency = std::pow(base_of(o, length), -exponent);
  if (o.scaling == 0 || o.type == "dynamic") return frequency;
  if (o.type == "linear") return frequency / o.scaling;
  if (o.type == "longrope") {
    const auto& factors = length > o.original_context ? o.long_factors : o.short_factors;
    return frequency / factors[static_cast<size_t>(i)];
  }
  return o.type == "yarn" ? yarn_frequency(o, i, frequency) : llama3_frequency(o, frequency);
}

// Stretched positions stand closer, so YaRN and LongRoPE make attention a little sharper.
double amplitude(const RopeOptions& o) {
  const bool yarn = o.type == "yarn";
  if (o.scaling == 0 || (!yarn && o.type != "longrope")) return 1;
  if (o.attention > 0) return o.attention;
  if (o.scaling <= 1) return 1;
  if (yarn) return 1 + 0.1 * std::log(o.scaling);
  return std::sqrt(1 + std::log(o.scaling) / std::log(static_cast<double>(o.original_context)));
}

}  // namespace

void rotate(const Frame& f, const RopeOptions& o, const Tensor& qkv, bool backward) {
  const int64_t width = (o.heads + 2 * o.kv_heads) * o.head_dim;
  for (const PositionedRows& rows : f.slice.rows()) {
    f.kernels->rope({.shape = {qkv.dtype, rows.samples, rows.length, o.heads, o.kv_heads, o.head_dim},
                     .qkv = qkv.as<char>() + rows.first_row * width * device::size_of(qkv.dtype),
                     .table = f.buffer("rope").as<float>(),
                     .first_position = rows.position,
                     .backward = backward,
                     .rotary_dim = o.turned(),
                     .row_positions = f.slice.positions,
                     .begins = f.document_begins(rows)},
                    f.launch);
  }
}

BufferSpec rope_buffer(const RopeOptions& options) {
  return {.key = "rope",
          .name = options.table,
          .shape = {options.positions, options.turned()},
          .by_length = depends_on_length(options)};
}

std::vector<double> rope_factors(const std::string& text) {
  std::vector<double> factors;
  for (const char* at = text.c_str(); *at != '\0';) {
    char* end = nullptr;
    factors.push_back(std::strtod(at, &end));
    if (end == at || !(factors.back() > 0) || !std::isfinite(factors.back())) return {};
    while (*end == ' ') ++end;
    if (*end != ',' && *end != '\0') return {};
    at = *end == ',' ? end + 1 : end;
  }
  return factors;
}

bool depends_on_length(const RopeOptions& options) {
  return options.scaling > 0 && (options.type == "dynamic" || options.type == "longrope");
}

void fill_rope_table(const RopeOptions& o, int64_t length, float* table) {
  const int64_t width = o.turned(), half = width / 2;
  const double height = amplitude(o);
  const bool by_row = depends_on_length(o);
  for (int64_t i = 0; i < half; ++i) {
    double frequency = scaled_frequency(o, i, length);
    for (int64_t position = 0; position < o.positions; ++position) {
      if (by_row && position >= length) frequency = scaled_frequency(o, i, position + 1);
      const double angle = static_cast<double>(position) * frequency;
      table[position * width + i] = static_cast<float>(height * std::cos(angle));
      table[position * width + half + i] = static_cast<float>(height * std::sin(angle));
    }
  }
}

}  // namespace lockstep::model
