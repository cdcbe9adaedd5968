#include "lockstep/comm/rank_sum.h"

#include <cstring>

#define LOCKSTEP_CPU_LEVEL rank_sum  // the kernels' conversions, under a name of their own
#include "lockstep/base/error.h"
#include "lockstep/device/cpu_features.h"
#include "lockstep/kernels/numbers_cpu.h"

namespace lockstep::comm {
namespace {

using device::DType;
using kernels::rank_sum::Bf16;
using kernels::rank_sum::F16;

constexpr int64_t kBlock = 1024;  // elements summed at a time: they stay in the nearest cache

// How a stored type is added: floats as they are, narrow floats in fp32, whole numbers without overflow.
template <class Stored, class Sum>
struct Arithmetic {
  LS_INLINE static Sum load(Stored value) { return static_cast<Sum>(value); }
  LS_INLINE static Stored store(Sum value) { return static_cast<Stored>(value); }
};
template <class Narrow>
struct NarrowFloat {
  LS_INLINE static float load(Narrow value) { return kernels::rank_sum::widen(value); }
  LS_INLINE static Narrow store(float value) { return kernels::rank_sum::narrow<Narrow>(value); }
};
template <>
struct Arithmetic<Bf16, float> : NarrowFloat<Bf16> {};
template <>
struct Arithmetic<F16, float> : NarrowFloat<F16> {};

struct Job {
  const void* const* from;
  int sources;
  void* const* to;
  int targets;
  int64_t count;
};

template <class Stored, class Sum>
LS_INLINE void sum_as(const Job& job) {
  using Number = Arithmetic<Stored, Sum>;
  const auto source = [&](int s, int64_t begin) { return static_cast<const Stored*>(job.from[s]) + begin; };
  Sum sums[kBlock];
  for (int64_t begin = 0; begin < job.count; begin += kBlock) {
    const int64_t n = job.count - begin < kBlock ? job.count - begin : kBlock;
    const Stored *first = source(0, begin), *second = source(1, begin);
    for (int64_t i = 0; i < n; ++i) sums[i] = Number::load(first[i]) + Number::load(second[i]);
    for (int s = 2; s < job.sources; ++s) {
      const Stored* next = source(s, begin);
      for (int64_t i = 0; i < n; ++i) sums[i] += Number::load(next[i]);
    }
    Stored* to = static_cast<Stored*>(job.to[0]) + begin;
    for (int64_t i = 0; i < n; ++i) to[i] = Number::store(sums[i]);
    for (int t = 1; t < job.targets; ++t) {
      std::memcpy(static_cast<Stored*>(job.to[t]) + begin, to, static_cast<size_t>(n) * sizeof(Stored));
    }
  }
}

LS_INLINE void sum_any(DType type, const Job& job) {
  switch (type) {
    case DType::f32:
      return sum_as<float, float>(job);
    case DType::f64:
      return sum_as<double, double>(job);
    case DType::bf16:
      return sum_as<Bf16, float>(job);
    case DType::f16:
      return sum_as<F16, float>(job);
    case DType::i32:
      return sum_as<uint32_t, uint32_t>(job);
    case DType::i64:
      return sum_as<uint64_t, uint64_t>(job);
    case DType::u8:
      break;
  }
  LS_ASSERT(false, device::name_of(type));
}

void sum_plain(DType type, const Job& job) { sum_any(type, job); }
#if defined(__x86_64__)
__attribute__((target("arch=x86-64-v3"))) void sum_v3(DType type, const Job& job) { sum_any(type, job); }
#endif

}  // namespace

void sum_ranks(DType type, const void* const* from, int sources, void* const* to, int targets,
               int64_t count) {
  LS_ASSERT(sources >= 2 && targets >= 1);
  const Job job{from, sources, to, targets, count};
#if defined(__x86_64__)
  static const bool wide = device::cpu_level() >= device::CpuLevel::v3;
  if (wide) return sum_v3(type, job);
#endif
  sum_plain(type, job);
}

}  // namespace lockstep::comm
