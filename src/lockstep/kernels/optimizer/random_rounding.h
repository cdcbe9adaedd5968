// Rounding to bf16 up or down at random, so that the mean of many roundings is the value itself.
//
// Nearest rounding would hold a slow average where it stands: the second moment moves by a thousandth of
// itself in a step (beta2 = 0.999), half a last place of bf16 is twice that. The draws are keyed by (seed,
// step, chunk of the model, element), so that any rank that holds an element rounds it alike.
#pragma once

#include <cstdint>

#include "lockstep/base/philox.h"
#include "lockstep/kernels/optimizer/step_state.h"

namespace lockstep::kernels {

LS_HOST_DEVICE inline uint64_t rounding_key(const StepInputs& inputs) {
  return base::mix64(inputs.seed + 0x9E3779B97F4A7C15ull * (inputs.step + 1)) ^ 0x6D6F6D656E747331ull;
}

// Draws for elements 4 q .. 4 q + 3 of a chunk.
LS_HOST_DEVICE inline base::Random4 rounding_draws(uint64_t key, int64_t chunk, int64_t q) {
  return base::philox(key, static_cast<uint64_t>(q), static_cast<uint64_t>(chunk));
}

// The bits of a bf16: one of the two neighbours of a number that is not negative; infinity stays.
LS_HOST_DEVICE inline uint16_t round_randomly(uint32_t float_bits, uint32_t draw) {
  return static_cast<uint16_t>((float_bits + (draw >> 16)) >> 16);
}

}  // namespace lockstep::kernels
