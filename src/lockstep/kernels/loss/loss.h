// Softmax cross-entropy, fused and in place: logits become their own gradient.
#pragma once

#include "lockstep/device/tensor.h"
#include "lockstep/kernels/launch.h"
#include "lockstep/kernels/optimizer/step_state.h"

namespace lockstep::kernels {

constexpr int32_t kIgnoredLabel = -1;

struct CrossEntropy {
  device::DType type = device::DType::f32;
  int64_t rows = 0, vocab = 0;
  // Values from the beginning of a row of logits to that of the next; 0: rows lie side by side. With
  // `gradient`, what lies between them becomes zeros.
  int64_t row = 0;
  void* logits = nullptr;           // [rows, vocab]; with `gradient`, d loss / d logits afterwards
  const int32_t* labels = nullptr;  // [rows]; kIgnoredLabel counts for nothing
  float* losses = nullptr;          // [rows]: -log p(label), 0 where ignored
  bool gradient = false;
  float* amax = nullptr;  // given, with `gradient` and row = vocab: gets the gradient's largest magnitude
  const StepInputs* inputs = nullptr;  // the gradient is scaled by loss_scale / valid_tokens
  const StepState* state = nullptr;
  float softcap = 0;  // the logits went through SoftCap, and the gradient is of what they were before; 0: no
  const float* weights = nullptr;  // [rows]: further factors on the gradient of each row; null: none
};

// Cross-entropy over a vocabulary that ranks hold in parts: each finds what its own logits say of a row, the
// parts are put side by side (by a collective, outside), and each then finishes on its own logits.
//
// stats of a row: the largest logit, the sum of exp(logit - largest), and the label's logit (0 where the
// label lies in another part or is ignored).
struct VocabStats {
  device::DType type = device::DType::f32;
  int64_t rows = 0, vocab = 0;  // of this part
  int64_t first = 0;            // the token of column 0
  int64_t row = 0;              // as in CrossEntropy
  const void* logits = nullptr;
  const int32_t* labels = nullptr;
  float* stats = nullptr;  // [rows, 3]
};

// As CrossEntropy, for one part; every part computes the same losses. A label beyond all parts goes unseen.
struct VocabCrossEntropy {
  device::DType type = device::DType::f32;
  int64_t rows = 0, vocab = 0, first = 0, parts = 1;
  int64_t row = 0;
  void* logits = nullptr;  // [rows, vocab]; with `gradient`, d loss / d logits afterwards
  const int32_t* labels = nullptr;
  const float* stats = nullptr;  // [parts, rows, 3]
  float* losses = nullptr;
  bool gradient = false;
  const StepInputs* inputs = nullptr;
  const StepState* state = nullptr;
  float softcap = 0;  // as in CrossEntropy
  const float* weights = nullptr;
};

// How far apart the rows of logits are: of any of the three above.
template <class Op>
constexpr int64_t row_of_logits(const Op& op) {
  return op.row > 0 ? op.row : op.vocab;
}

// Sum of a slice's token losses in fp64, in row order within row_parts parts, then over parts.
struct LossSum {
  int64_t rows = 0;
  const float* losses = nullptr;
  double* sum = nullptr;  // one value
};

// Direct preference optimization: of each pair of sequences, the first is to become likelier than the second,
// more so than a reference model has it. With h = beta * (what the pair's log-probabilities differ by, less
// what the reference's do) the loss of a pair is -(1 - smoothing) log sigmoid(h) - smoothing log sigmoid(-h).
//
// A pair without a label that counts is none: it has no loss and no gradient.
struct PreferenceLoss {
  int64_t pairs = 0, length = 0;       // rows are those of 2 * pairs sequences, one behind the other
  const int32_t* labels = nullptr;     // [rows]
  const float* losses = nullptr;       // [rows]: -log p(label), as CrossEntropy gives them
  const double* references = nullptr;  // [2 * pairs]: log-probabilities that the reference gives sequences
  float beta = 0, smoothing = 0;
  double* sequences = nullptr;  // [2 * pairs]: gets their log-probabilities, rows added up in order in fp64
  float* weights = nullptr;     // [rows]: gets d loss of the pair / d losses[row]
  double* sum = nullptr;        // one value: the losses of the pairs, in order
};

}  // namespace lockstep::kernels
