// Sums over a fixed tree: all inputs of an element meet in one thread's registers.
#include "lockstep/kernels/reduce/tree_sum.h"

#include "lockstep/kernels/elementwise/map.cuh"
#include "lockstep/kernels/reduce/reduce.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

struct Same {
  __device__ float operator()(float x) const { return x; }
};
struct SumOfPairs {
  __device__ float operator()(float a, float b, float c, float d) const { return (a + b) + (c + d); }
};

// The top is at 0 and everything else shifts: no index is computed, so that the stack stays in registers.
template <int kDepth, int N>
struct Stack {
  Vec<float, N> at[kDepth];

  __device__ void push(const Vec<float, N>& value) {
#pragma unroll
    for (int i = kDepth - 1; i > 0; --i) at[i] = at[i - 1];
    at[0] = value;
  }
  __device__ void merge() {
#pragma unroll
    for (int j = 0; j < N; ++j) at[0][j] = at[1][j] + at[0][j];
#pragma unroll
    for (int i = 1; i < kDepth - 1; ++i) at[i] = at[i + 1];
  }
};

template <int kDepth, int N>
__global__ void tree_sum_kernel(const __grid_constant__ TreeSum op) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * N;
  if (i >= op.count) return;
  Stack<kDepth, N> stack;
#pragma unroll 4
  for (int input = 0; input < op.inputs; ++input) {
    stack.push(load<N>(op.from[input] + i));
    for (int merge = 0; merge < op.merges[input]; ++merge) stack.merge();
  }
  store<N>(op.out + i, stack.at[0]);
}

bool fits_vectors(const TreeSum& op) {
  bool fits = op.count % kWide<float> == 0 && is_aligned(16, op.out);
  for (int i = 0; i < op.inputs; ++i) fits = fits && is_aligned(16, op.from[i]);
  return fits;
}

bool is_two_pairs(const TreeSum& op) {
  return op.inputs == 4 && op.merges[1] == 1 && op.merges[2] == 0 && op.merges[3] == 2;
}

}  // namespace

void tree_sum(const TreeSum& op, const Launch& launch) {
  const Launcher run("tree_sum", launch);
  const int depth = tree_depth(op);
  if (op.inputs == 1) return map(run, op.count, Same{}, op.out, op.from[0]);
  if (op.inputs == 2) return map(run, op.count, Sum{}, op.out, op.from[0], op.from[1]);
  if (is_two_pairs(op)) {
    return map(run, op.count, SumOfPairs{}, op.out, op.from[0], op.from[1], op.from[2], op.from[3]);
  }
  constexpr int kBalanced = 7;  // what halving a tree of 64 needs; others are right, not fast
  by_width<kWide<float>>(depth <= kBalanced && fits_vectors(op), [&](auto width) {
    constexpr int N = width.value;
    const Grid grid{.blocks = divide_up(op.count, int64_t{kMapThreads} * N), .threads = kMapThreads};
    if (depth <= kBalanced) return run(grid, tree_sum_kernel<kBalanced, N>, op);
    run(grid, tree_sum_kernel<kTreeInputs, 1>, op);  // N is 1
  });
}

}  // namespace lockstep::kernels::cuda
