#include "lockstep/kernels/embedding/embedding.h"

#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

// The table's row of a token, or -1 where it lies outside: in another part of the vocabulary, or (the loader
// refuses those) in none.
template <class Op>
LS_INLINE int64_t row_of(const Op& op, int32_t token) {
  const int64_t row = token - op.first_token;
  return row >= 0 && row < op.vocab ? row : -1;
}

template <class T>
void embed_row(const Embedding& op, int64_t row) {
  const int64_t width = op.width;
  const int64_t at = row_of(op, op.tokens[row]);
  T* out = static_cast<T*>(op.out) + row * width;
  const T* value = at < 0 ? nullptr : static_cast<const T*>(op.table) + at * width;
  int64_t place = op.row_positions != nullptr ? op.row_positions[row] : op.first_position + row % op.seq_len;
  if (op.begins != nullptr) place -= op.begins[row];
  const T* position = op.positions == nullptr ? nullptr : static_cast<const T*>(op.positions) + place * width;
  if (value != nullptr && position != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) out[i] = narrow<T>(widen(value[i]) * op.scale + widen(position[i]));
    return;
  }
  if (value != nullptr && op.scale != 1) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) out[i] = narrow<T>(widen(value[i]) * op.scale);
    return;
  }
  const T* only = value != nullptr ? value : position;
  for (int64_t i = 0; i < width; ++i) out[i] = only != nullptr ? only[i] : narrow<T>(0.0f);
}

template <class T>
LS_INLINE void add_row(const T* from, int64_t count, float* into, float scale = 1) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) into[i] += widen(from[i]) * scale;
}

void clear(float* values, int64_t count) {
  for_blocks(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = 0;
  });
}

// Rows are added to row_at(row) of the gradient, -1 to none: every column in the order of the rows by one
// thread, whichever it is.
template <class T, class RowAt>
void add_rows(const EmbeddingBackward& op, float* gradient, float scale, const RowAt& row_at) {
  const int64_t rows = op.samples * op.seq_len;
  const int64_t columns = round_up((op.width + device::thread_count() - 1) / device::thread_count(), kLanes);
  for_items((op.width + columns - 1) / columns, rows * columns, [&](int64_t item) {
    const int64_t begin = item * columns, count = smaller(columns, op.width - begin);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row_at(row);
      if (at < 0) continue;
      add_row(static_cast<const T*>(op.dout) + row * op.width + begin, count,
              gradient + at * op.width + begin, scale);
    }
  });
}

// Samples in order, onto what was there.
template <class T>
void add_positions(const EmbeddingBackward& op) {
  for_items(op.seq_len, op.samples * op.width, [&](int64_t position) {
    float* gradient = op.dpositions + (op.first_position + position) * op.width;
    for (int64_t sample = 0; sample < op.samples; ++sample) {
      add_row(static_cast<const T*>(op.dout) + (sample * op.seq_len + position) * op.width, op.width,
              gradient);
    }
  });
}

}  // namespace

void embedding(const Embedding& op, const Launch&) {
  with_type(op.type, [&](auto tag) {
    for_items(op.samples * op.seq_len, op.width, [&](int64_t row) { embed_row<decltype(tag)>(op, row); });
  });
}

void embedding_backward(const EmbeddingBackward& op, const Launch&) {
  if (!op.accumulate) {
    if (op.dtable != nullptr) clear(op.dtable, op.vocab * op.width);
    if (op.dpositions != nullptr) clear(op.dpositions, op.position_rows * op.width);
  }
  with_type(op.type, [&](auto tag) {
    using T = decltype(tag);
    if (op.dtable != nullptr)
      add_rows<T>(op, op.dtable, op.scale, [&](int64_t row) { return row_of(op, op.tokens[row]); });
    if (op.dpositions == nullptr) return;
    if (op.begins == nullptr) return add_positions<T>(op);
    add_rows<T>(op, op.dpositions, 1,
                [&](int64_t row) { return op.first_position + row % op.seq_len - op.begins[row]; });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
