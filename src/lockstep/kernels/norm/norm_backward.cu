// LayerNorm and RMSNorm, backward.
//
// With g = dy * weight and n the normalised row: dsum = rstd (g - mean(g) - n mean(g n)) + dresidual. A block
// takes a part of the rows; its teams hold a row each in registers, and beside it what they have summed so
// far for weight and bias. The next row of a team is fetched meanwhile. Rows too wide or too odd for that are
// walked twice.
#include <cuda_pipeline_primitives.h>

#include "lockstep/kernels/norm/norm_row.cuh"
#include "lockstep/kernels/norm/norm_weight.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

// Adds what the teams of a block have, in their order, and writes it.
template <class T, int kTeam, int kVectors>
__device__ void write_partial(const float (&sums)[kVectors][kWide<T>], int64_t width, float* partial) {
  constexpr int N = kWide<T>, kThreads = kTeam * kTeams<kTeam>;
  if constexpr (kTeams<kTeam> == 1) {
    for_vectors<T, kTeam, kVectors>(width, [&](int v, int64_t i) {
#pragma unroll
      for (int j = 0; j < N; ++j) partial[i + j] = sums[v][j];
    });
  } else {
    __shared__ float of_teams[kTeams<kTeam>][kVectors][N][kTeam];
    __syncthreads();  // what stood there has been read
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int j = 0; j < N; ++j) of_teams[threadIdx.y][v][j][threadIdx.x] = sums[v][j];
    }
    __syncthreads();
    const int first = static_cast<int>(threadIdx.y) * kTeam + static_cast<int>(threadIdx.x);
    for (int column = first; column < width; column += kThreads) {
      const int vector = column / N;
      float sum = 0;
#pragma unroll
      for (int team = 0; team < kTeams<kTeam>; ++team)
        sum += of_teams[team][vector / kTeam][column % N][vector % kTeam];
      partial[column] = sum;
    }
  }
}

// Vectors of dy, sum and dresidual that are on their way into shared memory, for two rows of each team. A
// thread fetches what it will read itself, so nobody waits for anybody.
template <class T, int kTeam, int kVectors>
struct Fetched {
  using Vector = Vec<T, kWide<T>>;
  enum Source { kDy, kSum, kResidual, kSources };
  Vector at[2][kSources][kVectors][kTeam * kTeams<kTeam>];

  __device__ Vector& place(int turn, Source source, int v) {
    return at[turn][source][v][threadIdx.y * kTeam + threadIdx.x];
  }
  __device__ void ask_for(int turn, const NormBackward& op, int64_t row) {
    const auto from = [&](const void* rows, int64_t i) {
      return static_cast<const T*>(rows) + row * op.width + i;
    };
    for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t i) {
      __pipeline_memcpy_async(&place(turn, kDy, v), from(op.dy, i), 16);
      __pipeline_memcpy_async(&place(turn, kSum, v), from(op.sum, i), 16);
      if (op.dresidual) __pipeline_memcpy_async(&place(turn, kResidual, v), from(op.dresidual, i), 16);
    });
  }
};

template <class T, int kTeam, int kVectors, bool kLayer>
__global__ void __launch_bounds__(kTeam* kTeams<kTeam>, kTeam > kRowThreads ? 1 : 2)
    norm_backward_row_kernel(NormBackward op) {
  constexpr int N = kWide<T>;
  using Rows = Fetched<T, kTeam, kVectors>;
  extern __shared__ __align__(16) unsigned char shared[];
  Rows& rows = *reinterpret_cast<Rows*>(shared);
  const float inverse_width = 1.0f / static_cast<float>(op.width);
  const T* weight = static_cast<const T*>(op.weight);
  const int64_t part = blockIdx.x, parts = gridDim.x, end = op.rows * (part + 1) / parts;  // part_begin()
  float dweight[kVectors][N] = {}, dbias[kVectors][N] = {};
  int turn = 0;
  const int64_t first = op.rows * part / parts + threadIdx.y;
  if (first < end) rows.ask_for(turn, op, first);
  __pipeline_commit();
  for (int64_t row = first; row < end; row += kTeams<kTeam>, turn ^= 1) {
    const int64_t begin = row * op.width;
    if (row + kTeams<kTeam> < end) rows.ask_for(turn ^ 1, op, row + kTeams<kTeam>);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    Vec<T, N> d[kVectors], x[kVectors];
    for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t) {
      d[v] = rows.place(turn, Rows::kDy, v);
      x[v] = rows.place(turn, Rows::kSum, v);
    });
    const float mean = kLayer ? op.mean[row] : 0.0f, rstd = op.rstd[row];
    float2 sums{0.0f, 0.0f};  // of g n, and of g
    for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t i) {
      const Vec<T, N> w = load<N>(weight + i);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float dy = to_float(d[v][j]), n = (to_float(x[v][j]) - mean) * rstd,
                    g = dy * (to_float(w[j]) + op.weight_offset);
        sums.x += g * n;
        dweight[v][j] += dy * n;
        if constexpr (kLayer) {
          sums.y += g;
          dbias[v][j] += dy;
        }
      }
    });
    sums = row_sums<kTeam>(sums, turn);
    const float along = sums.x * inverse_width, total = sums.y * inverse_width;
    for_vectors<T, kTeam, kVectors>(op.width, [&](int v, int64_t i) {
      const Vec<T, N> w = load<N>(weight + i);
      Vec<T, N> r{}, out;
      if (op.dresidual) r = rows.place(turn, Rows::kResidual, v);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float n = (to_float(x[v][j]) - mean) * rstd,
                    g = to_float(d[v][j]) * (to_float(w[j]) + op.weight_offset);
        const float gradient = rstd * (g - total - n * along);
        out[j] = from_float<T>(op.dresidual ? gradient + to_float(r[j]) : gradient);
      }
      store<N>(static_cast<T*>(op.dsum) + begin + i, out);
    });
  }
  write_partial<T, kTeam, kVectors>(dweight, op.width, op.partial_dweight + part * op.width);
  if constexpr (kLayer)
    write_partial<T, kTeam, kVectors>(dbias, op.width, op.partial_dbias + part * op.width);
}

// Any width, a block a row; the sums for weight and bias are made apart.
template <class T, int N>
__global__ void norm_backward_walk_kernel(NormBackward op) {
  const int64_t row = blockIdx.x, begin = row * op.width;
  const T* dy = static_cast<const T*>(op.dy) + begin;
  const T* sum = static_cast<const T*>(op.sum) + begin;
  const T* weight = static_cast<const T*>(op.weight);
  const bool layer = op.kind == NormKind::layer;
  const float mean = layer ? op.mean[row] : 0.0f, rstd = op.rstd[row];
  float total = 0, along = 0;
  for_columns<N>(op.width, [&](int64_t i) {
    const Vec<T, N> d = load<N>(dy + i), v = load<N>(sum + i), w = load<N>(weight + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float g = to_float(d[j]) * (to_float(w[j]) + op.weight_offset);
      total += g;
      along += g * ((to_float(v[j]) - mean) * rstd);
    }
  });
  along = block_fold<kRowThreads>(along, Sum{}) / static_cast<float>(op.width);
  total = layer ? block_fold<kRowThreads>(total, Sum{}) / static_cast<float>(op.width) : 0.0f;

  const T* dresidual = op.dresidual ? static_cast<const T*>(op.dresidual) + begin : nullptr;
  T* dsum = static_cast<T*>(op.dsum) + begin;
  for_columns<N>(op.width, [&](int64_t i) {
    const Vec<T, N> d = load<N>(dy + i), v = load<N>(sum + i), w = load<N>(weight + i);
    Vec<T, N> r{}, out;
    if (dresidual) r = load<N>(dresidual + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float g = to_float(d[j]) * (to_float(w[j]) + op.weight_offset);
      const float gradient = rstd * (g - total - (to_float(v[j]) - mean) * rstd * along);
      out[j] = from_float<T>(dresidual ? gradient + to_float(r[j]) : gradient);
    }
    store<N>(dsum + i, out);
  });
}

// False where the row is too wide, or the GPU has too little shared memory (before compute capability 8.0).
template <class T>
bool in_registers(const NormBackward& op, const Launcher& run) {
  bool done = false;
  by_row<T>(op.width, [&](auto team, auto held) {
    constexpr int kTeam = team.value, kVectors = held.value;
    constexpr int64_t kFetched = sizeof(Fetched<T, kTeam, kVectors>), kOfTeams = 32 << 10;
    if (kFetched + kOfTeams > most_shared_bytes()) return;
    const Grid grid{
        .blocks = row_parts(op.rows), .threads = kTeam, .teams = kTeams<kTeam>, .shared_bytes = kFetched};
    run(grid,
        op.kind == NormKind::layer ? norm_backward_row_kernel<T, kTeam, kVectors, true>
                                   : norm_backward_row_kernel<T, kTeam, kVectors, false>,
        op);
    done = true;
  });
  return done;
}

}  // namespace

void norm_backward(const NormBackward& op, const Launch& launch) {
  const Launcher run("norm_backward", launch);
  by_type(op.type, [&](auto element) {
    using T = decltype(element);
    const bool vectors = fits_vectors<T>(op.width, op.dy, op.sum, op.weight, op.dresidual, op.dsum);
    if (vectors && in_registers<T>(op, run)) return;
    norm_weight_partials(op, run);
    by_width<kWide<T>>(vectors, [&](auto width) {
      run({.blocks = op.rows, .threads = kRowThreads}, norm_backward_walk_kernel<T, width.value>, op);
    });
  });
}

}  // namespace lockstep::kernels::cuda
