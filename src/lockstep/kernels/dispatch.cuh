// From run-time types and widths to template arguments.
//
//     by_type(op.type, [&](auto element) {
//       using T = decltype(element);
//       by_width<kWide<T>>(fits_vectors<T>(op.count, op.x, op.y), [&](auto width) {
//         run(grid, kernel<T, width.value>, ...);
//       });
//     });
#pragma once

#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/device/tensor.h"
#include "lockstep/kernels/vector.cuh"

namespace lockstep::kernels {

template <class Function>
void by_type(device::DType type, Function function) {
  switch (type) {
    case device::DType::f32:
      return function(float{});
    case device::DType::bf16:
      return function(Bf16{});
    case device::DType::f16:
      return function(F16{});
    default:
      break;
  }
  LS_ASSERT(false, std::string("no kernel for ") + device::name_of(type));
}

template <int kMany, class Function>
void by_width(bool many, Function function) {
  if (many) return function(std::integral_constant<int, kMany>{});
  function(std::integral_constant<int, 1>{});
}

inline bool is_aligned(int bytes, const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Whether rows (or a flat run) of `count` elements of T may be read in 16-byte vectors at every pointer.
template <class T, class... Pointers>
bool fits_vectors(int64_t count, const Pointers*... pointers) {
  return count % kWide<T> == 0 && (is_aligned(16, pointers) && ...);
}

}  // namespace lockstep::kernels
