#include "lockstep/kernels/embedding.h"

#include "lockstep/kernels/ops_cpu.h"

namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL {
namespace {

LS_INLINE bool is_known(int32_t token, int64_t vocab) { return token >= 0 && token < vocab; }

template <class T>
void embed_row(const Embedding& op, int64_t row) {
  const int64_t width = op.width;
  const int32_t token = op.tokens[row];
  T* out = static_cast<T*>(op.out) + row * width;
  if (!is_known(token, op.vocab)) {  // the loader refuses such tokens; should one come, the loss will show it
    for (int64_t i = 0; i < width; ++i) out[i] = narrow<T>(__builtin_nanf(""));
    return;
  }
  const T* value = static_cast<const T*>(op.table) + token * width;
  if (op.positions == nullptr) {
    for (int64_t i = 0; i < width; ++i) out[i] = value[i];
    return;
  }
  const T* position = static_cast<const T*>(op.positions) + (op.first_position + row % op.seq_len) * width;
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) out[i] = narrow<T>(widen(value[i]) + widen(position[i]));
}

template <class T>
LS_INLINE void add_row(const T* from, int64_t count, float* into) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) into[i] += widen(from[i]);
}

void clear(float* values, int64_t count) {
  for_blocks(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = 0;
  });
}

// Every column is summed in token order by one thread, whichever it is.
template <class T>
void add_tokens(const EmbeddingBackward& op) {
  const int64_t rows = op.samples * op.seq_len;
  const int64_t columns = round_up((op.width + device::thread_count() - 1) / device::thread_count(), kLanes);
  for_items((op.width + columns - 1) / columns, rows * columns, [&](int64_t item) {
    const int64_t begin = item * columns, count = smaller(columns, op.width - begin);
    for (int64_t row = 0; row < rows; ++row) {
      const int32_t token = op.tokens[row];
      if (!is_known(token, op.vocab)) continue;
      add_row(static_cast<const T*>(op.dout) + row * op.width + begin, count,
              op.dtable + token * op.width + begin);
    }
  });
}

// Samples in order, onto what was there.
template <class T>
void add_positions(const EmbeddingBackward& op) {
  for_items(op.seq_len, op.samples * op.width, [&](int64_t position) {
    float* gradient = op.dpositions + position * op.width;
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
    clear(op.dtable, op.vocab * op.width);
    if (op.dpositions != nullptr) clear(op.dpositions, op.position_rows * op.width);
  }
  with_type(op.type, [&](auto tag) {
    add_tokens<decltype(tag)>(op);
    if (op.dpositions != nullptr) add_positions<decltype(tag)>(op);
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_CPU_LEVEL
