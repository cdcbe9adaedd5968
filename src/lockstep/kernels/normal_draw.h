// Normal random numbers as a function of (seed, stream, element): Box-Muller on Philox, in fp32.
//
// Every product that is added to something is an explicit fma and nothing else can be contracted, so
// CPU and GPU draw the same bits, also of fmaf(deviation, draw, mean): a model starts from the same weights
// on every device.
#pragma once

#include <math.h>
#include <string.h>

#include "lockstep/base/philox.h"

namespace lockstep::kernels {

// Natural logarithm of k / 2^32 for k in [1, 2^32]: k = m * 2^e with m in [0.75, 1.5), then a series in
// s = (m - 1) / (m + 1).
LS_HOST_DEVICE inline float log_of_unit(uint32_t k_minus_one) {
  // Rounding the 32-bit integer to fp32 keeps 24 significant bits at any magnitude.
  const float k = static_cast<float>(k_minus_one) + 1.0f;
  uint32_t bits;
  memcpy(&bits, &k, 4);
  const uint32_t exponent = (bits - 0x3F400000u) >> 23;  // counted from 0.75
  bits -= exponent << 23;
  float m;
  memcpy(&m, &bits, 4);
  const float s = (m - 1.0f) / (m + 1.0f), square = s * s;
  float p = fmaf(square, 0.22222222f, 0.2857142857f);
  p = fmaf(p, square, 0.4f);
  p = fmaf(p, square, 0.6666666667f);
  const float tail = (p * square) * s;
  return fmaf(static_cast<float>(static_cast<int32_t>(exponent) - 32), 0.69314718056f, fmaf(2.0f, s, tail));
}

// Cosine and sine of 2 pi * turn / 2^32.
LS_HOST_DEVICE inline void cosine_sine(uint32_t turn, float* cosine, float* sine) {
  const uint32_t quadrant = (turn + 0x20000000u) >> 30;                // nearest quarter turn
  const int32_t rest = static_cast<int32_t>(turn - (quadrant << 30));  // within an eighth of a turn of it
  const float x = static_cast<float>(rest) * 1.4629180792671596e-9f;   // 2 pi / 2^32
  const float square = x * x;
  float s = fmaf(square, 2.7183114939e-6f, -1.9839334836e-4f);
  s = fmaf(s, square, 8.3333293855e-3f);
  s = fmaf(s, square, -1.6666666641e-1f);
  s = fmaf(s * square, x, x);
  float c = fmaf(square, 2.4433157118e-5f, -1.3887316255e-3f);
  c = fmaf(c, square, 4.1666645683e-2f);
  c = fmaf(c, square, -0.5f);
  c = fmaf(c, square, 1.0f);
  const bool swapped = (quadrant & 1u) != 0;
  const float first = swapped ? s : c, second = swapped ? c : s;
  *cosine = quadrant == 1 || quadrant == 2 ? -first : first;
  *sine = (quadrant & 2u) != 0 ? -second : second;
}

// Elements 4q + {0, 1} come from words x and y of philox(normal_key, q, kNormalCounter), {2, 3} from z and w.
constexpr uint64_t kNormalCounter = 0x6E6F726D;  // apart from dropout's counters

LS_HOST_DEVICE inline uint64_t normal_key(uint64_t seed, uint64_t stream) {
  return base::mix64(seed + 0x9E3779B97F4A7C15ull * (stream + 1));
}

LS_HOST_DEVICE inline void normal_pair(uint32_t radius_word, uint32_t angle_word, float* first,
                                       float* second) {
  const float radius = sqrtf(-2.0f * log_of_unit(radius_word));
  float cosine, sine;
  cosine_sine(angle_word, &cosine, &sine);
  *first = radius * cosine;
  *second = radius * sine;
}

}  // namespace lockstep::kernels
