#include "lockstep/kernels/norm/head_norm.h"

#include <math.h>

#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

// One run of a row: where it begins, and what its weights are.
template <class T>
struct RunPlace {
  int64_t at, width, whole;  // whole: what a mean over it is divided by
  const T* weight;
  bool query;
};

template <class T>
LS_INLINE RunPlace<T> run_place(const HeadRuns& runs, int64_t run) {
  const auto whole = [](int64_t width, int64_t shared) { return shared > 0 ? shared : width; };
  if (run < runs.q_runs)
    return {run * runs.q_width, runs.q_width, whole(runs.q_width, runs.q_whole),
            static_cast<const T*>(runs.q_weight), true};
  return {runs.q_runs * runs.q_width + (run - runs.q_runs) * runs.k_width, runs.k_width,
          whole(runs.k_width, runs.k_whole), static_cast<const T*>(runs.k_weight), false};
}

template <class T>
LS_INLINE float sum_of_squares(const T* values, int64_t width) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < width; ++i) total += widen(values[i]) * widen(values[i]);
  return total;
}

template <class T>
LS_INLINE void copy_rest(const HeadRuns& runs, const T* from, T* to) {
  for (int64_t i = runs.row_width() - runs.rest; i < runs.row_width(); ++i) to[i] = from[i];
}

template <class T>
void forward_row(const HeadNorm& op, int64_t row) {
  const HeadRuns& runs = op.runs;
  const T* x = static_cast<const T*>(op.x) + row * runs.row_width();
  T* y = static_cast<T*>(op.y) + row * runs.row_width();
  for (int64_t run = 0; run < runs.runs(); ++run) {
    const RunPlace<T> place = run_place<T>(runs, run);
    const T* values = x + place.at;
    const float squares =
        op.squares != nullptr ? op.squares[row * 2 + run] : sum_of_squares(values, place.width);
    const float rstd = 1.0f / sqrtf(squares / static_cast<float>(place.whole) + op.epsilon);
    op.rstd[row * runs.runs() + run] = rstd;
#pragma omp simd
    for (int64_t i = 0; i < place.width; ++i)
      y[place.at + i] = narrow<T>(widen(values[i]) * rstd * (widen(place.weight[i]) + runs.weight_offset));
  }
  copy_rest(runs, x, y);
}

template <class T>
LS_INLINE float mean_along(const T* dy, const T* x, const RunPlace<T>& place, float rstd, float offset) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < place.width; ++i)
    total += widen(dy[i]) * (widen(place.weight[i]) + offset) * (widen(x[i]) * rstd);
  return total / static_cast<float>(place.whole);
}

template <class T>
void backward_row(const HeadNormBackward& op, int64_t row, float* dq_weight, float* dk_weight) {
  const HeadRuns& runs = op.runs;
  const int64_t begin = row * runs.row_width();
  const T* x = static_cast<const T*>(op.x) + begin;
  const T* dy = static_cast<const T*>(op.dy) + begin;
  T* dx = static_cast<T*>(op.dx) + begin;
  for (int64_t run = 0; run < runs.runs(); ++run) {
    const RunPlace<T> place = run_place<T>(runs, run);
    const T *x_run = x + place.at, *dy_run = dy + place.at;
    const float rstd = op.rstd[row * runs.runs() + run];
    float along = mean_along(dy_run, x_run, place, rstd, runs.weight_offset);
    if (op.dsquares != nullptr) {  // x * rstd * along * rstd is 2 x * what the sum of squares gets
      op.dsquares[row * 2 + run] = -0.5f * along * rstd * rstd;
      along = 0;
    }
    float* dweight = place.query ? dq_weight : dk_weight;
#pragma omp simd
    for (int64_t i = 0; i < place.width; ++i) {
      const float gradient = widen(dy_run[i]), normal = widen(x_run[i]) * rstd;
      dweight[i] += gradient * normal;
      dx[place.at + i] =
          narrow<T>((gradient * (widen(place.weight[i]) + runs.weight_offset) - normal * along) * rstd);
    }
  }
  copy_rest(runs, dy, dx);
}

}  // namespace

void head_norm(const HeadNorm& op, const Launch&) {
  with_type(op.runs.type, [&](auto tag) {
    for_items(op.runs.rows, op.runs.row_width(), [&](int64_t row) { forward_row<decltype(tag)>(op, row); });
  });
}

void head_squares(const HeadSquares& op, const Launch&) {
  with_type(op.runs.type, [&](auto tag) {
    using T = decltype(tag);
    for_items(op.runs.rows, op.runs.row_width(), [&](int64_t row) {
      for (int64_t run = 0; run < 2; ++run) {
        const RunPlace<T> place = run_place<T>(op.runs, run);
        op.squares[row * 2 + run] =
            sum_of_squares(static_cast<const T*>(op.x) + row * op.runs.row_width() + place.at, place.width);
      }
    });
  });
}

void head_squares_backward(const HeadSquaresBackward& op, const Launch&) {
  const HeadRuns& runs = op.runs;
  with_type(runs.type, [&](auto tag) {
    using T = decltype(tag);
    for_items(runs.rows, runs.row_width(), [&](int64_t row) {
      const int64_t begin = row * runs.row_width(), q_end = runs.q_width, k_end = q_end + runs.k_width;
      const T* x = static_cast<const T*>(op.x) + begin;
      const T* passed = static_cast<const T*>(op.dpassed) + begin;
      T* dx = static_cast<T*>(op.dx) + begin;
      for (int64_t i = 0; i < k_end; ++i)
        dx[i] = narrow<T>(widen(passed[i]) + 2.0f * widen(x[i]) * op.dsquares[row * 2 + (i < q_end ? 0 : 1)]);
      for (int64_t i = k_end; i < runs.row_width(); ++i) dx[i] = passed[i];
    });
  });
}

void head_norm_backward(const HeadNormBackward& op, const Launch&) {
  const HeadRuns& runs = op.runs;
  const int64_t parts = row_parts(runs.rows);
  with_type(runs.type, [&](auto tag) {
    for_items(parts, (runs.rows + parts - 1) / parts * runs.row_width(), [&](int64_t part) {
      float* dq_weight = op.partial_q + part * runs.q_width;
      float* dk_weight = op.partial_k + part * runs.k_width;
      for (int64_t i = 0; i < runs.q_width; ++i) dq_weight[i] = 0;
      for (int64_t i = 0; i < runs.k_width; ++i) dk_weight[i] = 0;
      const int64_t end = part_begin(runs.rows, parts, part + 1);
      for (int64_t row = part_begin(runs.rows, parts, part); row < end; ++row)
        backward_row<decltype(tag)>(op, row, dq_weight, dk_weight);
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
