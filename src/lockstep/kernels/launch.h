// What every kernel call is given beside its own arguments.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

struct Launch {
  void* stream = nullptr;     // cudaStream_t on CUDA; unused on the CPU
  void* workspace = nullptr;  // scratch of the lane, at least what the op's *_workspace() asked for
  int64_t workspace_bytes = 0;
  bool tf32 = false;  // fp32 products on CUDA may round their operands to TF32; the CPU ignores it
  // Products of few rows, on the CPU: each row of the result has the same bits whatever other rows there are.
  // What `generate` decodes with, so that a text does not depend on its neighbours; CUDA ignores it.
  bool rows_alone = false;
};

// Partitions of work, so that sums are folded in an order that depends on the shape alone, never on
// threads, SMs or free memory: rows are cut into this many contiguous runs of nearly equal length. A part is
// a block's on a GPU, so that few rows still keep many processors busy.
inline int64_t row_parts(int64_t rows) {
  const int64_t parts = (rows + 15) / 16;
  return parts < 1 ? 1 : parts > 256 ? 256 : parts;
}
inline int64_t part_begin(int64_t rows, int64_t parts, int64_t part) { return rows * part / parts; }

}  // namespace lockstep::kernels
