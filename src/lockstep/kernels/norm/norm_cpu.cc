#include "lockstep/kernels/norm/norm.h"

#include <math.h>

#include "lockstep/kernels/norm/norm_cpu.h"
#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

// sum = round(residual + x), the rounded values being what is normalised.
template <class T>
LS_INLINE void add_rows(const T* x, const T* residual, int64_t width, T* sum) {
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) sum[i] = narrow<T>(widen(residual[i]) + widen(x[i]));
}

template <class T>
LS_INLINE float mean_of(const T* values, int64_t width) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < width; ++i) total += widen(values[i]);
  return total / static_cast<float>(width);
}

template <class T>
LS_INLINE float mean_square_about(const T* values, int64_t width, float mean) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < width; ++i) total += (widen(values[i]) - mean) * (widen(values[i]) - mean);
  return total / static_cast<float>(width);
}

template <class T, bool kShifted>
void forward_row(const NormForward& op, int64_t row) {
  const int64_t width = op.width, at = row * width;
  const T* values = static_cast<const T*>(op.x) + at;
  if (op.residual != nullptr) {
    T* sum = static_cast<T*>(op.sum) + at;
    add_rows(values, static_cast<const T*>(op.residual) + at, width, sum);
    values = sum;
  }
  const float mean = op.kind == NormKind::layer ? mean_of(values, width) : 0.0f;
  const float rstd = 1.0f / sqrtf(mean_square_about(values, width, mean) + op.epsilon);
  if (op.mean != nullptr) op.mean[row] = mean;
  op.rstd[row] = rstd;

  const T* weight = static_cast<const T*>(op.weight);
  const T* bias = static_cast<const T*>(op.bias);
  T* y = static_cast<T*>(op.y) + at;
  if (bias != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      y[i] = narrow<T>((widen(values[i]) - mean) * rstd * weight_of<kShifted>(weight[i], op.weight_offset) +
                       widen(bias[i]));
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i)
      y[i] = narrow<T>((widen(values[i]) - mean) * rstd * weight_of<kShifted>(weight[i], op.weight_offset));
  }
}

}  // namespace

void norm_forward(const NormForward& op, const Launch&) {
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    for_items(op.rows, op.width, [&](int64_t row) {
      op.weight_offset != 0 ? forward_row<T, true>(op, row) : forward_row<T, false>(op, row);
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
