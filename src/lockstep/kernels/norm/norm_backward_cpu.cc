// Gradients of norms and of biases. Rows are summed within parts that depend on the shape alone
// (row_parts), then the parts in order.
#include "lockstep/kernels/norm/norm.h"
#include "lockstep/kernels/norm/norm_cpu.h"
#include "lockstep/kernels/ops_cpu.h"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

struct RowSums {
  float plain, with_normal;  // means of dy * weight, and of dy * weight * normalised
};

template <bool kShifted, class T>
LS_INLINE RowSums row_sums(const T* dy, const T* sum, const T* weight, float offset, int64_t width,
                           float mean, float rstd) {
  float plain = 0, with_normal = 0;
#pragma omp simd reduction(+ : plain, with_normal)
  for (int64_t i = 0; i < width; ++i) {
    const float weighted = widen(dy[i]) * weight_of<kShifted>(weight[i], offset);
    plain += weighted;
    with_normal += weighted * ((widen(sum[i]) - mean) * rstd);
  }
  const float scale = 1.0f / static_cast<float>(width);
  return {plain * scale, with_normal * scale};
}

template <class T, bool kLayer, bool kAdd, bool kShifted>
LS_INLINE void backward_row(const NormBackward& op, int64_t row, float* dweight, float* dbias) {
  const int64_t width = op.width, at = row * width;
  const T* dy = static_cast<const T*>(op.dy) + at;
  const T* sum = static_cast<const T*>(op.sum) + at;
  const T* weight = static_cast<const T*>(op.weight);
  const T* dresidual = static_cast<const T*>(op.dresidual) + (kAdd ? at : 0);
  T* dsum = static_cast<T*>(op.dsum) + at;
  const float mean = kLayer ? op.mean[row] : 0.0f, rstd = op.rstd[row];
  const RowSums sums = row_sums<kShifted>(dy, sum, weight, op.weight_offset, width, mean, rstd);
  const float plain = kLayer ? sums.plain : 0.0f, with_normal = sums.with_normal;
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const float gradient = widen(dy[i]), normal = (widen(sum[i]) - mean) * rstd;
    const float inner =
        (gradient * weight_of<kShifted>(weight[i], op.weight_offset) - plain - normal * with_normal) * rstd;
    dsum[i] = narrow<T>(kAdd ? inner + widen(dresidual[i]) : inner);
    dweight[i] += gradient * normal;
    if (kLayer) dbias[i] += gradient;
  }
}

LS_INLINE void clear(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = 0;
}

template <class T, bool kLayer, bool kAdd, bool kShifted>
void backward_part(const NormBackward& op, int64_t part, int64_t parts) {
  float* dweight = op.partial_dweight + part * op.width;
  float* dbias = kLayer ? op.partial_dbias + part * op.width : nullptr;
  clear(dweight, op.width);
  if (kLayer) clear(dbias, op.width);
  const int64_t end = part_begin(op.rows, parts, part + 1);
  for (int64_t row = part_begin(op.rows, parts, part); row < end; ++row) {
    backward_row<T, kLayer, kAdd, kShifted>(op, row, dweight, dbias);
  }
}

// gradient (+)= sum over parts, in part order; columns are independent of each other.
void fold_parts(const NormWeightBackward& op) {
  constexpr int64_t kColumns = 64;  // keeps a run's sums in registers
  for_items((op.width + kColumns - 1) / kColumns, op.parts * kColumns, [&](int64_t item) {
    const int64_t begin = item * kColumns, count = smaller(kColumns, op.width - begin);
    float sums[kColumns] = {};
    for (int64_t part = 0; part < op.parts; ++part) {
      const float* partial = op.partial + part * op.width + begin;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) sums[i] += partial[i];
    }
    float* gradient = op.gradient + begin;
    for (int64_t i = 0; i < count; ++i) gradient[i] = op.accumulate ? gradient[i] + sums[i] : sums[i];
  });
}

template <class T, bool kShifted>
void backward_part_of_kind(const NormBackward& op, int64_t part, int64_t parts) {
  const bool layer = op.kind == NormKind::layer, add = op.dresidual != nullptr;
  if (layer && add) return backward_part<T, true, true, kShifted>(op, part, parts);
  if (layer) return backward_part<T, true, false, kShifted>(op, part, parts);
  if (add) return backward_part<T, false, true, kShifted>(op, part, parts);
  return backward_part<T, false, false, kShifted>(op, part, parts);
}

}  // namespace

void norm_backward(const NormBackward& op, const Launch&) {
  const int64_t parts = row_parts(op.rows);
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    for_items(parts, (op.rows + parts - 1) / parts * op.width, [&](int64_t part) {
      if (op.weight_offset != 0) return backward_part_of_kind<T, true>(op, part, parts);
      return backward_part_of_kind<T, false>(op, part, parts);
    });
  });
}

void norm_weight_backward(const NormWeightBackward& op, const Launch&) {
  fold_parts(op);
  if (op.partial_bias == nullptr) return;
  NormWeightBackward bias = op;
  bias.partial = op.partial_bias, bias.gradient = op.bias_gradient;
  fold_parts(bias);
}

void bias_backward(const BiasBackward& op, const Launch& launch) {
  require_workspace(launch, bias_backward_workspace(op.rows, op.width), "bias_backward");
  const int64_t parts = row_parts(op.rows);
  float* partial = static_cast<float*>(launch.workspace);  // [parts, width]
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    const T* dy = static_cast<const T*>(op.dy);
    for_items(parts, (op.rows + parts - 1) / parts * op.width, [&](int64_t part) {
      float* sums = partial + part * op.width;
      clear(sums, op.width);
      const int64_t end = part_begin(op.rows, parts, part + 1);
      for (int64_t row = part_begin(op.rows, parts, part); row < end; ++row) {
        const T* values = dy + row * op.width;
#pragma omp simd
        for (int64_t i = 0; i < op.width; ++i) sums[i] += widen(values[i]);
      }
    });
  });
  fold_parts({.parts = parts,
              .width = op.width,
              .partial = partial,
              .gradient = op.gradient,
              .accumulate = op.accumulate});
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
