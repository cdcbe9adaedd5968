// The backward pass of both norms in one walk over the rows: gradients of the input, and partial sums of
// those of weight and bias. A block owns one part of the rows (row_parts), its teams take them in turn, and a
// thread keeps the same columns of every row, so that its sums stay in registers until the part is done.
#include "lockstep/kernels/norm_backward.cuh"

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/reduce.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMiddleTeam = 128;
constexpr int kMostVectors = 2;  // of one thread: more would not fit its registers

struct TwoSums {
  float total, along;
};

// The threads of one team wait for each other; the block's other teams are elsewhere.
template <int kTeam>
__device__ void team_barrier() {
  asm volatile("bar.sync %0, %1;" ::"r"(static_cast<int>(threadIdx.y) + 1), "r"(kTeam) : "memory");
}

// Over a team. `turn` alternates, so that one barrier is enough: a warp that is already at the next row
// writes into the other half.
template <int kTeam>
__device__ TwoSums fold_two(TwoSums mine, int turn) {
  mine = {warp_fold(mine.total, Sum{}), warp_fold(mine.along, Sum{})};
  if constexpr (kTeam == kWarp) return mine;
  constexpr int kWarps = kTeam / kWarp;  // of a team
  __shared__ TwoSums of_warps[2][kThreads / kWarp];
  const int first = static_cast<int>(threadIdx.y) * kWarps;
  if (threadIdx.x % kWarp == 0) of_warps[turn][first + threadIdx.x / kWarp] = mine;
  team_barrier<kTeam>();
  TwoSums all{0, 0};
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    all.total += of_warps[turn][first + warp].total;
    all.along += of_warps[turn][first + warp].along;
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

// What is read of one row.
template <class Own, class T, bool kLayer>
struct RowInputs {
  Own dy, sum, dresidual;
  float mean, rstd;

  __device__ void read(const NormBackward& op, int64_t row) {
    const int64_t begin = row * op.width;
    dy.read(static_cast<const T*>(op.dy) + begin, op.width);
    sum.read(static_cast<const T*>(op.sum) + begin, op.width);
    if (op.dresidual) dresidual.read(static_cast<const T*>(op.dresidual) + begin, op.width);
    mean = kLayer ? op.mean[row] : 0.0f;
    rstd = op.rstd[row];
  }
};

// With g = dy * weight and n the normalised row: dsum = rstd (g - mean(g) - n mean(g n)) + dresidual.
// The next row is on its way while this one is worked on. Two blocks a processor, so that all parts run at
// once.
template <class T, int N, int kTeam, int kVectors, bool kLayer>
__global__ void __launch_bounds__(kThreads, 2) norm_backward_one_walk_kernel(NormBackward op, int64_t parts) {
  using Own = OwnColumns<T, N, kTeam, kVectors>;
  constexpr int kTeams = kThreads / kTeam;
  constexpr bool kAhead = kVectors == 1 || !kLayer;  // as far as registers go
  const int64_t part = blockIdx.x;
  const int64_t end = op.rows * (part + 1) / parts;  // part_begin()
  Own weight{};
  weight.read(static_cast<const T*>(op.weight), op.width);
  float dweight[kVectors][N] = {}, dbias[kVectors][N] = {};
  int turn = 0;
  int64_t row = op.rows * part / parts + threadIdx.y;
  RowInputs<Own, T, kLayer> next{};
  if (kAhead && row < end) next.read(op, row);
  for (; row < end; row += kTeams) {
    RowInputs<Own, T, kLayer> in = next;
    if (!kAhead) in.read(op, row);
    if (kAhead && row + kTeams < end) next.read(op, row + kTeams);

    TwoSums sums{0, 0};
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (Own::column(k) >= op.width) continue;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float dy = to_float(in.dy.at[k][j]), n = (to_float(in.sum.at[k][j]) - in.mean) * in.rstd;
        const float g = dy * to_float(weight.at[k][j]);
        sums.total += g;
        sums.along += g * n;
        dweight[k][j] += dy * n;
        if constexpr (kLayer) dbias[k][j] += dy;
      }
    }
    sums = fold_two<kTeam>(sums, turn);
    turn ^= 1;
    const float total = kLayer ? sums.total / static_cast<float>(op.width) : 0.0f;
    const float along = sums.along / static_cast<float>(op.width);
    T* dsum = static_cast<T*>(op.dsum) + row * op.width;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (Own::column(k) >= op.width) continue;
      Vec<T, N> out;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float g = to_float(in.dy.at[k][j]) * to_float(weight.at[k][j]);
        const float n = (to_float(in.sum.at[k][j]) - in.mean) * in.rstd;
        const float gradient = in.rstd * (g - total - n * along);
        out[j] = from_float<T>(op.dresidual ? gradient + to_float(in.dresidual.at[k][j]) : gradient);
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

template <class T>
void by_team(const NormBackward& op, const Launcher& run) {
  const int64_t vectors = divide_up(op.width, kWide<T>);
  if (vectors <= kWarp) return launch_one_walk<T, kWarp, 1>(op, run);
  if (vectors <= kMiddleTeam) return launch_one_walk<T, kMiddleTeam, 1>(op, run);
  if (vectors <= kThreads) return launch_one_walk<T, kThreads, 1>(op, run);
  launch_one_walk<T, kThreads, kMostVectors>(op, run);
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
