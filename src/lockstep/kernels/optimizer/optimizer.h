// Gradient norm and parameter updates: passes over flat fp32 buffers.
#pragma once

#include "lockstep/base/philox.h"
#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"
#include "lockstep/kernels/optimizer/step_state.h"

namespace lockstep::kernels {

// The unit of the canonical order: norms, hashes and shards are cut only here.
constexpr int64_t kChunk = 65536;

// One contiguous run of a flat buffer, at most kChunk elements, never across two parameters.
struct Chunk {
  int64_t begin = 0;       // element offset in the flat buffer
  int32_t count = 0;       // <= kChunk
  float weight_decay = 0;  // of the parameter it belongs to
  float rate = 1;          // times the learning rate, for that parameter
  // Its place among its block's sums and draws, whatever part of them a rank holds; -1: its place in the
  // table.
  int32_t slot = -1;
  LS_HOST_DEVICE int64_t number(int64_t at) const { return slot >= 0 ? slot : at; }
};

// sums[chunk i's number] = sum of its squares in fp64, fixed order. `gradient` holds the scaled gradient.
struct SquareSums {
  const float* gradient = nullptr;
  const Chunk* chunks = nullptr;  // device memory
  int64_t chunk_count = 0;
  double* sums = nullptr;
};

// Folds every chunk's sum in canonical order, then sets loss, grad_norm, clip, apply, the bias
// corrections and the loss scale in StepState. slice_losses are folded in slice order.
struct NormFinish {
  const double* sums = nullptr;
  int64_t chunk_count = 0;
  const double* slice_losses = nullptr;
  int64_t slices = 0;
  const StepInputs* inputs = nullptr;
  StepState* state = nullptr;
  NormPolicy policy;
};

// own: a program's, which brings its function (Update::own); on the CPU only.
enum class UpdateRule : uint8_t { adamw, sgd, lion, own };

// Tensors that a rule of chunks keeps for a parameter, at most.
constexpr int kMostState = 8;

// What a rule of a program's own is called with: a run of elements of one parameter, with what it keeps of
// them in fp32. Runs are cut anywhere, so an element's update may look at nothing but that element.
struct OwnUpdate {
  float* master = nullptr;
  const float* gradient = nullptr;  // times `clip` is what counts
  float* state[kMostState] = {};    // in the order in which its row names them
  float* m = nullptr;               // the first of them
  float* v = nullptr;               // and the second; null: it keeps one value only
  int64_t count = 0;
  float rate = 0, clip = 1, weight_decay = 0;
  float beta1 = 0, beta2 = 0, epsilon = 0;
  double beta1_power = 0, beta2_power = 0;  // to the number of this step, counted from 1
};
using OwnRule = void (*)(const OwnUpdate&);

// master -= lr * rule(gradient * clip); nothing at all when state->apply is 0.
//   adamw: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr (mhat / (sqrt(vhat) + eps) + decay p)
//   sgd:   m = momentum m + g;  p -= lr (m + decay p)            (beta1 is the momentum; PyTorch's form)
//   lion:  u = sign(b1 m + (1-b1) g); p -= lr (u + decay p); m = b2 m + (1-b2) g
struct Update {
  UpdateRule rule = UpdateRule::adamw;
  OwnRule own = nullptr;  // with UpdateRule::own
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
  float* master = nullptr;
  const float* gradient = nullptr;
  void* m = nullptr;
  void* v = nullptr;  // adamw only
  // With UpdateRule::own, instead of these two: as many as it keeps, each in a type of its own. Of those in
  // bf16 the second is rounded as v is, and must not be negative.
  void* kept[kMostState] = {};
  device::DType kept_types[kMostState] = {};
  int kept_count = 0;
  // fp32 or bf16. In bf16 both are computed in fp32 and used so; then m is rounded to the nearest and v,
  // which moves by less than a last place, at random (kernels/optimizer/random_rounding.h).
  device::DType moment_type = device::DType::f32;
  int64_t first_chunk = 0;  // before those of this block: with a chunk's number, it keys the draws
  void* compute = nullptr;  // rounded copy of the new master; null when compute is fp32
  device::DType compute_type = device::DType::bf16;
  const Chunk* chunks = nullptr;
  int64_t chunk_count = 0;
  const StepInputs* inputs = nullptr;
  const StepState* state = nullptr;
};

// 128-bit hash of each chunk's bits: two sums of mixed words, independent of the order of evaluation.
struct HashChunks {
  const float* values = nullptr;
  const Chunk* chunks = nullptr;
  int64_t chunk_count = 0;
  uint64_t* hashes = nullptr;  // [chunk_count, 2]
};

}  // namespace lockstep::kernels
