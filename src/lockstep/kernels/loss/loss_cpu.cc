#include "lockstep/kernels/loss/loss.h"

#include <math.h>

#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

template <class T>
LS_INLINE float highest_of(const T* values, int64_t count) {
  float highest = -__builtin_inff();
#pragma omp simd reduction(max : highest)
  for (int64_t i = 0; i < count; ++i) {
    const float value = widen(values[i]);
    highest = value > highest ? value : highest;
  }
  return highest;
}

// Summed in pieces: in one go, the terms of a long row would be rounded to the size of the sum so far.
constexpr int64_t kPiece = 1024;

template <class T>
LS_INLINE float sum_of_powers(const T* values, int64_t count, float highest) {
  double total = 0;
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t end = first + kPiece < count ? first + kPiece : count;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = first; i < end; ++i) sum += exponential(widen(values[i]) - highest);
    total += static_cast<double>(sum);
  }
  return static_cast<float>(total);
}

// The same, leaving the exponentials behind, so that the gradient need not compute them again.
LS_INLINE float become_powers(float* values, int64_t count, float highest) {
  double total = 0;
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t end = first + kPiece < count ? first + kPiece : count;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = first; i < end; ++i) {
      values[i] = exponential(values[i] - highest);
      sum += values[i];
    }
    total += static_cast<double>(sum);
  }
  return static_cast<float>(total);
}

// What lies behind the last column of a row.
template <class Op, class T>
LS_INLINE void clear_rest(const Op& op, T* logits) {
  for (int64_t i = op.vocab; i < row_of_logits(op); ++i) logits[i] = narrow<T>(0.0f);
}

// A label outside the vocabulary (the loader refuses those) gives a loss that is not a number.
template <class Op, class T>
void skip_row(const Op& op, int64_t row, T* logits) {
  op.losses[row] = op.labels[row] == kIgnoredLabel ? 0.0f : __builtin_nanf("");
  if (!op.gradient) return;
  for (int64_t i = 0; i < row_of_logits(op); ++i) logits[i] = narrow<T>(0.0f);
}

// By what a soft cap multiplies the gradient of a logit that it gave.
template <bool kCapped>
LS_INLINE float slope_at(float logit, float inverse_cap) {
  return kCapped ? 1.0f - (logit * inverse_cap) * (logit * inverse_cap) : 1.0f;
}

template <class T, bool kCapped>
void loss_row(const CrossEntropy& op, int64_t row, float gradient_scale) {
  T* logits = static_cast<T*>(op.logits) + row * row_of_logits(op);
  const int32_t label = op.labels[row];
  if (label < 0 || label >= op.vocab) return skip_row(op, row, logits);

  // Narrower types would round the exponentials, and a cap's slope needs the logits themselves.
  constexpr bool kInPlace = sizeof(T) == sizeof(float) && !kCapped;
  const float highest = highest_of(logits, op.vocab), right = widen(logits[label]);
  float sum;
  if constexpr (kInPlace) {
    sum = op.gradient ? become_powers(logits, op.vocab, highest) : sum_of_powers(logits, op.vocab, highest);
  } else {
    sum = sum_of_powers(logits, op.vocab, highest);
  }
  op.losses[row] = logf(sum) + (highest - right);
  if (!op.gradient) return;

  const float scale = gradient_scale / sum, inverse_cap = kCapped ? 1.0f / op.softcap : 0.0f;
  const float at_label =
      (exponential(right - highest) * scale - gradient_scale) * slope_at<kCapped>(right, inverse_cap);
#pragma omp simd
  for (int64_t i = 0; i < op.vocab; ++i) {
    const float value = widen(logits[i]);
    logits[i] = narrow<T>((kInPlace ? value : exponential(value - highest)) * scale *
                          slope_at<kCapped>(value, inverse_cap));
  }
  logits[label] = narrow<T>(at_label);
  clear_rest(op, logits);
}

template <class T>
void stats_row(const VocabStats& op, int64_t row) {
  const T* logits = static_cast<const T*>(op.logits) + row * row_of_logits(op);
  const float highest = highest_of(logits, op.vocab);
  const int64_t label = op.labels[row] - op.first;
  float* stats = op.stats + row * 3;
  stats[0] = highest;
  // Where everything is masked, exp(-inf - 0) is 0 and exp(-inf + inf) would not be a number.
  stats[1] = sum_of_powers(logits, op.vocab, highest == -__builtin_inff() ? 0.0f : highest);
  stats[2] = op.labels[row] >= 0 && label >= 0 && label < op.vocab ? widen(logits[label]) : 0.0f;
}

// The parts' stats of a row as one, folded in the order of the parts: the same bits in every part.
struct WholeRow {
  float highest, sum, right;
};

LS_INLINE WholeRow whole_row(const VocabCrossEntropy& op, int64_t row) {
  const float* first = op.stats + row * 3;
  const int64_t stride = op.rows * 3;
  WholeRow whole = {first[0], 0, 0};
  for (int64_t part = 1; part < op.parts; ++part) {
    const float highest = first[part * stride];
    whole.highest = highest > whole.highest ? highest : whole.highest;
  }
  for (int64_t part = 0; part < op.parts; ++part) {
    const float* stats = first + part * stride;
    whole.sum += stats[1] * exponential(stats[0] - whole.highest);
    whole.right += stats[2];
  }
  return whole;
}

template <class T, bool kCapped>
void vocab_loss_row(const VocabCrossEntropy& op, int64_t row, float gradient_scale) {
  T* logits = static_cast<T*>(op.logits) + row * row_of_logits(op);
  if (op.labels[row] < 0) return skip_row(op, row, logits);
  const WholeRow whole = whole_row(op, row);
  op.losses[row] = logf(whole.sum) + (whole.highest - whole.right);
  if (!op.gradient) return;

  const float scale = gradient_scale / whole.sum, inverse_cap = kCapped ? 1.0f / op.softcap : 0.0f;
  const float at_label = (exponential(whole.right - whole.highest) * scale - gradient_scale) *
                         slope_at<kCapped>(whole.right, inverse_cap);
#pragma omp simd
  for (int64_t i = 0; i < op.vocab; ++i) {
    const float value = widen(logits[i]);
    logits[i] = narrow<T>(exponential(value - whole.highest) * scale * slope_at<kCapped>(value, inverse_cap));
  }
  const int64_t label = op.labels[row] - op.first;
  if (label >= 0 && label < op.vocab) logits[label] = narrow<T>(at_label);
  clear_rest(op, logits);
}

template <class Op>
float gradient_scale(const Op& op) {
  return static_cast<float>(op.gradient ? static_cast<double>(op.state->loss_scale) / op.inputs->valid_tokens
                                        : 0);
}

template <class Op>
LS_INLINE float scale_of_row(const Op& op, int64_t row, float scale) {
  return op.weights == nullptr ? scale : scale * op.weights[row];
}

// log sigmoid(x), for any x without a loss of digits.
double log_sigmoid(double x) { return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }
double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }

double logprob_of(const PreferenceLoss& op, int64_t sequence) {
  double sum = 0;
  const float* losses = op.losses + sequence * op.length;
  for (int64_t i = 0; i < op.length; ++i) sum -= static_cast<double>(losses[i]);
  return sum;
}

bool counts(const PreferenceLoss& op, int64_t pair) {
  const int32_t* labels = op.labels + 2 * pair * op.length;
  for (int64_t i = 0; i < 2 * op.length; ++i) {
    if (labels[i] != kIgnoredLabel) return true;
  }
  return false;
}

// Of the pair with the log-probabilities first and second.
double pair_loss(const PreferenceLoss& op, int64_t pair) {
  const double* now = op.sequences + 2 * pair;
  const double* before = op.references + 2 * pair;
  const auto beta = static_cast<double>(op.beta), smoothing = static_cast<double>(op.smoothing);
  const double h = beta * ((now[0] - before[0]) - (now[1] - before[1]));
  const bool real = counts(op, pair);
  const double slope = real ? beta * ((1 - smoothing) * sigmoid(-h) - smoothing * sigmoid(h)) : 0;
  float* weights = op.weights + 2 * pair * op.length;
  for (int64_t i = 0; i < op.length; ++i) {
    weights[i] = static_cast<float>(slope);
    weights[op.length + i] = static_cast<float>(-slope);
  }
  return real ? -(1 - smoothing) * log_sigmoid(h) - smoothing * log_sigmoid(-h) : 0;
}

}  // namespace

void cross_entropy(const CrossEntropy& op, const Launch& launch) {
  const float scale = gradient_scale(op);
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    for_items(op.rows, op.vocab, [&](int64_t row) {
      const float of_row = scale_of_row(op, row, scale);
      op.softcap > 0 ? loss_row<T, true>(op, row, of_row) : loss_row<T, false>(op, row, of_row);
    });
  });
  if (op.amax != nullptr)
    fp8_amax({.rows = op.rows, .columns = op.vocab, .x = op.logits, .amax = op.amax}, launch);
}

void vocab_stats(const VocabStats& op, const Launch&) {
  with_type(op.type, [&](auto tag) {
    for_items(op.rows, op.vocab, [&](int64_t row) { stats_row<decltype(tag)>(op, row); });
  });
}

void vocab_cross_entropy(const VocabCrossEntropy& op, const Launch&) {
  const float scale = gradient_scale(op);
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    for_items(op.rows, op.gradient ? op.vocab : op.parts, [&](int64_t row) {
      const float of_row = scale_of_row(op, row, scale);
      op.softcap > 0 ? vocab_loss_row<T, true>(op, row, of_row) : vocab_loss_row<T, false>(op, row, of_row);
    });
  });
}

void loss_sum(const LossSum& op, const Launch&) {
  const int64_t parts = row_parts(op.rows);
  double total = 0;
  for (int64_t part = 0; part < parts; ++part) {
    double sum = 0;
    const int64_t end = part_begin(op.rows, parts, part + 1);
    for (int64_t row = part_begin(op.rows, parts, part); row < end; ++row)
      sum += static_cast<double>(op.losses[row]);
    total += sum;
  }
  *op.sum = total;
}

void preference_loss(const PreferenceLoss& op, const Launch&) {
  for_items(2 * op.pairs, op.length,
            [&](int64_t sequence) { op.sequences[sequence] = logprob_of(op, sequence); });
  double total = 0;
  for (int64_t pair = 0; pair < op.pairs; ++pair) total += pair_loss(op, pair);
  *op.sum = total;
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
