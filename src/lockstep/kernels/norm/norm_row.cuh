// A row in registers: a team of threads holds all of it, so that memory is walked once.
//
// A thread owns kVectors vectors of 16 bytes, a team's width apart. How large the team is follows from the
// width alone, and with it the order of every sum.
#pragma once

#include "lockstep/kernels/dispatch.cuh"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/reduce/reduce.cuh"

namespace lockstep::kernels::cuda {

constexpr int kRowThreads = 256;  // of a block, unless a team is larger
constexpr int kWidestTeam = 512;
constexpr int kMostVectors = 3;

template <int kTeam>
constexpr int kTeams = kTeam < kRowThreads ? kRowThreads / kTeam : 1;  // in a block

// Calls function(v, column) for each of this thread's vectors.
template <class T, int kTeam, int kVectors, class Function>
__device__ inline void for_vectors(int64_t width, Function function) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = (v * kTeam + static_cast<int>(threadIdx.x)) * kWide<T>;
    if (column < width) function(v, column);
  }
}

// The same for a block that walks a row of any width, N elements at a time.
template <int N, class Function>
__device__ inline void for_columns(int64_t width, Function function) {
  for (int64_t i = threadIdx.x * N; i < width; i += kRowThreads * N) function(i);
}

// The sums over a team, in every thread of it. `turn` alternates between 0 and 1 from call to call: then one
// barrier, which only the team meets at, is enough.
template <int kTeam>
__device__ inline float2 row_sums(float2 value, int turn) {
  value.x = warp_fold(value.x, Sum{});
  value.y = warp_fold(value.y, Sum{});
  if constexpr (kTeam > kWarp) {
    constexpr int kWarps = kTeam / kWarp;
    __shared__ float2 of_warps[2][kTeams<kTeam>][kWarps];
    float2(&mine)[kWarps] = of_warps[turn][threadIdx.y];
    if (threadIdx.x % kWarp == 0) mine[threadIdx.x / kWarp] = value;
    asm volatile("bar.sync %0, %1;" ::"r"(static_cast<int>(threadIdx.y) + 1), "n"(kTeam) : "memory");
    value = mine[threadIdx.x % kWarps];
    value.x = warp_fold<kWarps>(value.x, Sum{});
    value.y = warp_fold<kWarps>(value.y, Sum{});
  }
  return value;
}

// Calls function(team, vectors), both integral constants, for a row of `width` elements of T; false where it
// is too wide.
template <class T, class Function>
bool by_row(int64_t width, Function function) {
  const int64_t vectors = divide_up(width, kWide<T>);
  const auto team_of = [&](auto team, auto fewest) {
    if (vectors > team.value * kMostVectors) return false;
    if constexpr (fewest.value <= 1) {
      if (vectors <= team.value) {
        function(team, std::integral_constant<int, 1>{});
        return true;
      }
    }
    if (vectors <= team.value * 2) {
      function(team, std::integral_constant<int, 2>{});
    } else {
      function(team, std::integral_constant<int, 3>{});
    }
    return true;
  };
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;  // fewer vectors would be a smaller team's
  return team_of(std::integral_constant<int, kWarp>{}, One{}) ||
         team_of(std::integral_constant<int, 64>{}, Two{}) ||
         team_of(std::integral_constant<int, 128>{}, Two{}) ||
         team_of(std::integral_constant<int, 256>{}, Two{}) ||
         team_of(std::integral_constant<int, kWidestTeam>{}, Two{});
}

}  // namespace lockstep::kernels::cuda
