// The scalars of a step that live on the device, so that a step never waits for the host.
//
// The host writes StepInputs before a step (one small copy); kernels read and write StepState; the
// host reads StepState back one step late. All three are plain data: the same bytes on every device.
#pragma once

#include <cstdint>

#include "lockstep/base/philox.h"

namespace lockstep::kernels {

struct StepInputs {
  uint64_t seed = 0;
  uint64_t step = 0;  // counted by the host; data and schedule follow it
  float learning_rate = 0;
  float unused = 0;
  // Each rank writes its own; the step's first instruction adds up those of all ranks.
  double valid_tokens = 1;  // labels that count
  double stop = 0;          // 1: asked to stop; a fraction: something else that ranks are to do together
};
constexpr int64_t kSummedInputs = 2;  // valid_tokens and what follows it

struct StepState {
  // Persistent: part of a checkpoint.
  double beta1_power = 1;  // beta1^applied: Adam's bias correction; advances only when applied
  double beta2_power = 1;
  int64_t applied = 0;     // updates applied
  int64_t skipped = 0;     // updates skipped because a gradient was not finite
  float loss_scale = 1;    // fp16: dynamic; otherwise 1
  int32_t good_steps = 0;  // in a row, since the scale last changed
  // Results of the step, read back by the host.
  double loss = 0;       // mean over the global batch's valid tokens
  double grad_norm = 0;  // of the unscaled gradient, before clipping
  float clip = 1;        // factor on the scaled gradient: 1 / loss_scale, and the clip
  uint32_t apply = 1;    // the predicate of `update`: every gradient finite
  uint64_t step = 0;     // which step these results are of
  double stop = 0;       // the sum over ranks: the same number on each
};

// How `norm` turns square sums into StepState.
struct NormPolicy {
  float max_norm = 0;          // 0: no clipping
  float beta1 = 0, beta2 = 0;  // to advance the bias corrections
  bool dynamic_scale = false;  // fp16
  bool stops = false;  // the host ends the run at the first step that is not finite, once it reads of it
  int32_t growth_interval = 2000;
  float growth = 2, backoff = 0.5f, max_scale = 16777216.0f;
};

// Whether a step in `before` ends the run: until the host has read of it, no later one moves the weights,
// which are to be saved as they were. What the scaler of fp16 skips ends nothing.
LS_HOST_DEVICE inline bool ends_run(const NormPolicy& policy, const StepState& before) {
  const bool finite = before.loss - before.loss == 0;
  return policy.stops && (!finite || (before.apply == 0 && !policy.dynamic_scale));
}

}  // namespace lockstep::kernels
