// The backward pass of both norms in one walk over the rows: gradients of the input, and partial sums of
// those of weight and bias. A block owns one part of the rows (row_parts), its teams take them in turn, and a
// thread keeps the same columns of every row, so that its sums stay in registers until the part is done.
#include "lockstep/kernels/norm_backward.cuh"

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/reduce.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostVectors = 4;  // of one thread

struct TwoSums {
  float total, along;
};

// Over a warp, or over the block. `turn` alternates, so that one barrier is enough: a warp that is already at
// the next row writes into the other half.
template <int kTeam>
__device__ TwoSums fold_two(TwoSums mine, int turn) {
  mine = {warp_fold(mine.total, Sum{}), warp_fold(mine.along, Sum{})};
  if constexpr (kTeam == kWarp) return mine;
  constexpr int kWarps = kThreads / kWarp;
  __shared__ TwoSums of_warps[2][kWarps];
  if (threadIdx.x % kWarp == 0) of_warps[turn][threadIdx.x / kWarp] = mine;
  __syncthreads();
  TwoSums all{0, 0};
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    all.total += of_warps[turn][warp].total;
    all.along += of_warps[turn][warp].along;
  }
  return all;
}

// What a thread owns of a row: vector v begins at column (v * kTeam + threadIdx.x) * N.
template <class T, int N, int kTeam, int kVectors>
struct OwnColumns {
  Vec<T, N> at[kVectors];

  __device__ static int64_t column(int v) { return (v * kTeam + static_cast<int>(threadIdx.x)) * N; }
  __device__ void read(const T* row, int64_t width) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (column(v) < width) at[v] = load<N>(row + column(v));
    }
  }
};

// Adds the teams' sums in their order and writes the part's row of `partial`.
template <int N, int kTeam, int kVectors>
__device__ void write_partial(const float (&sums)[kVectors][N], float* partial, int64_t width) {
  constexpr int kTeams = kThreads / kTeam;
  if constexpr (kTeams == 1) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int64_t column = (v * kTeam + static_cast<int>(threadIdx.x)) * N;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (column < width) partial[column + j] = sums[v][j];
      }
    }
  } else {
    constexpr int kColumns = kTeam * kVectors * N;
    extern __shared__ float of_teams[];  // [kTeams, kColumns]
    __syncthreads();                     // what stood there has been read
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        of_teams[threadIdx.y * kColumns + (v * N + j) * kTeam + threadIdx.x] = sums[v][j];
      }
    }
    __syncthreads();
    for (int i = threadIdx.y * kTeam + threadIdx.x; i < kColumns; i += kThreads) {
      const int lane = i % kTeam, v = i / kTeam / N, j = i / kTeam % N;
      const int64_t column = (v * kTeam + lane) * N + j;
      if (column >= width) continue;
      float sum = 0;
#pragma unroll
      for (int team = 0; team < kTeams; ++team) sum += of_teams[team * kColumns + i];
      partial[column] = sum;
    }
  }
}

// With g = dy * weight and n the normalised row: dsum = rstd (g - mean(g) - n mean(g n)) + dresidual.
template <class T, int N, int kTeam, int kVectors, bool kLayer>
__global__ void __launch_bounds__(kThreads) norm_backward_one_walk_kernel(NormBackward op, int64_t parts) {
  using Own = OwnColumns<T, N, kTeam, kVectors>;
  constexpr int kTeams = kThreads / kTeam;
  const int64_t part = blockIdx.x;
  const int64_t end = op.rows * (part + 1) / parts;  // part_begin()
  Own weight{};
  weight.read(static_cast<const T*>(op.weight), op.width);
  float dweight[kVectors][N] = {}, dbias[kVectors][N] = {};
  int turn = 0;
  for (int64_t row = op.rows * part / parts + threadIdx.y; row < end; row += kTeams) {
    const int64_t begin = row * op.width;
    Own d{}, v{}, r{};
    d.read(static_cast<const T*>(op.dy) + begin, op.width);
    v.read(static_cast<const T*>(op.sum) + begin, op.width);
    if (op.dresidual) r.read(static_cast<const T*>(op.dresidual) + begin, op.width);
    const float mean = kLayer ? op.mean[row] : 0.0f, rstd = op.rstd[row];

    TwoSums sums{0, 0};
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (Own::column(k) >= op.width) continue;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float dy = to_float(d.at[k][j]), normalised = (to_float(v.at[k][j]) - mean) * rstd;
        const float g = dy * to_float(weight.at[k][j]);
        sums.total += g;
        sums.along += g * normalised;
        dweight[k][j] += dy * normalised;
        if constexpr (kLayer) dbias[k][j] += dy;
      }
    }
    sums = fold_two<kTeam>(sums, turn);
    turn ^= 1;
    const float total = kLayer ? sums.total / static_cast<float>(op.width) : 0.0f;
    const float along = sums.along / static_cast<float>(op.width);
    T* dsum = static_cast<T*>(op.dsum) + begin;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (Own::column(k) >= op.width) continue;
      Vec<T, N> out;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float g = to_float(d.at[k][j]) * to_float(weight.at[k][j]);
        const float normalised = (to_float(v.at[k][j]) - mean) * rstd;
        const float gradient = rstd * (g - total - normalised * along);
        out[j] = from_float<T>(op.dresidual ? gradient + to_float(r.at[k][j]) : gradient);
      }
      store<N>(dsum + Own::column(k), out);
    }
  }
  write_partial<N, kTeam, kVectors>(dweight, op.partial_dweight + part * op.width, op.width);
  if constexpr (kLayer) {
    write_partial<N, kTeam, kVectors>(dbias, op.partial_dbias + part * op.width, op.width);
  }
}

template <class T, int kTeam, int kVectors>
void launch_one_walk(const NormBackward& op, const Launcher& run) {
  constexpr int N = kWide<T>, kTeams = kThreads / kTeam;
  const int64_t parts = row_parts(op.rows);
  const Grid grid{.blocks = parts,
                  .threads = kTeam,
                  .teams = kTeams,
                  .shared_bytes = kTeams == 1 ? 0 : int64_t{kThreads} * kVectors * N * 4};
  if (op.kind == NormKind::layer) {
    run(grid, norm_backward_one_walk_kernel<T, N, kTeam, kVectors, true>, op, parts);
  } else {
    run(grid, norm_backward_one_walk_kernel<T, N, kTeam, kVectors, false>, op, parts);
  }
}

template <class T, int kTeam>
void by_vectors(const NormBackward& op, const Launcher& run) {
  switch (divide_up(op.width, kTeam * kWide<T>)) {
    case 1:
      return launch_one_walk<T, kTeam, 1>(op, run);
    case 2:
      return launch_one_walk<T, kTeam, 2>(op, run);
    case 3:
      return launch_one_walk<T, kTeam, 3>(op, run);
    default:
      return launch_one_walk<T, kTeam, 4>(op, run);
  }
}

template <class T>
void by_team(const NormBackward& op, const Launcher& run) {
  if (op.width <= kWarp * kWide<T> * kMostVectors) return by_vectors<T, kWarp>(op, run);
  by_vectors<T, kThreads>(op, run);
}

}  // namespace

bool fits_one_walk(const NormBackward& op) {
  const bool half = op.type == device::DType::bf16 || op.type == device::DType::f16;
  return half && op.width <= kThreads * kWide<Bf16> * kMostVectors &&
         fits_vectors<Bf16>(op.width, op.dy, op.sum, op.weight, op.dresidual, op.dsum);
}

void norm_backward_one_walk(const NormBackward& op, const Launcher& run) {
  if (op.type == device::DType::bf16) return by_team<Bf16>(op, run);
  by_team<F16>(op, run);
}

}  // namespace lockstep::kernels::cuda
