#include "lockstep/run/executor/ceilings.h"

#include <algorithm>

#include "lockstep/base/clock.h"
#include "lockstep/kernels/table.h"

namespace lockstep::run {
namespace {

using device::DType;

// Times `call` on a stream of its own: the best of a few, in milliseconds.
template <class Call>
double best_ms(device::Device& device, device::Stream stream, Call call) {
  constexpr int kTimes = 8;
  const device::Event begin = device.create_event(), end = device.create_event();
  double best = 1e30;
  for (int i = 0; i < kTimes; ++i) {
    const int64_t began = base::monotonic_ns();
    device.record(begin, stream);
    call();
    device.record(end, stream);
    device.synchronize(stream);
    const bool cpu = device.id().kind == device::Kind::cpu;
    best = std::min(best, cpu ? static_cast<double>(base::monotonic_ns() - began) / 1e6
                              : device.milliseconds_between(begin, end));
  }
  device.destroy_event(begin);
  device.destroy_event(end);
  return best;
}

class Scratch {
 public:
  Scratch(device::Device& device, int64_t bytes) : device_(device), data_(device.allocate(bytes)) {}
  ~Scratch() { device_.free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* get() const { return data_; }

 private:
  device::Device& device_;
  void* data_;
};

double copy_speed(device::Device& device, device::Stream stream, int64_t bytes) {
  const Scratch from(device, bytes), to(device, bytes);
  device.fill_zero(from.get(), bytes, stream);
  const double ms = best_ms(device, stream, [&] {
    device.copy(to.get(), from.get(), bytes, device::CopyKind::device_to_device, stream);
  });
  return 2.0 * static_cast<double>(bytes) / (ms * 1e6);
}

double product_speed(device::Device& device, device::Stream stream, int64_t side, DType type, bool tf32) {
  const kernels::Kernels& kernels = kernels::kernels_for(device.id().kind);
  kernels::Gemm gemm{.m = side, .n = side, .k = side, .in_type = type, .out_type = type, .trans_b = true};
  const int64_t count = side * side, bytes = count * device::size_of(type);
  const int64_t workspace_bytes = kernels.gemm_workspace(gemm);
  const Scratch values(device, count * 4), a(device, bytes), c(device, bytes),
      workspace(device, workspace_bytes);
  const kernels::Launch launch{stream, workspace.get(), workspace_bytes, tf32};
  kernels.fill_normal({.count = count, .values = static_cast<float*>(values.get())}, launch);
  kernels.cast({DType::f32, type, count, values.get(), a.get()}, launch);
  gemm.a = gemm.b = a.get();
  gemm.c = c.get();
  const double ms = best_ms(device, stream, [&] { kernels.gemm(gemm, launch); });
  return 2.0 * static_cast<double>(side) * static_cast<double>(count) / (ms * 1e9);
}

// The same of fp8, scaled by tensor and with fast sums: the fastest there is.
double fp8_speed(device::Device& device, device::Stream stream, int64_t side) {
  const kernels::Kernels& kernels = kernels::kernels_for(device.id().kind);
  kernels::Fp8Gemm gemm{.m = side, .n = side, .k = side, .fast_sum = true};
  const int64_t count = side * side, workspace_bytes = kernels.fp8_gemm_workspace(gemm);
  const Scratch values(device, count * 4), wide(device, count * 2), a(device, count), c(device, count * 2),
      numbers(device, 256), workspace(device, workspace_bytes);
  const kernels::Launch launch{stream, workspace.get(), workspace_bytes};
  auto *amax = static_cast<float*>(numbers.get()), *scale = amax + 32;
  kernels.fill_normal({.count = count, .values = static_cast<float*>(values.get())}, launch);
  kernels.cast({DType::f32, DType::bf16, count, values.get(), wide.get()}, launch);
  kernels.fp8_amax({.rows = side, .columns = side, .x = wide.get(), .amax = amax}, launch);
  kernels.fp8_cast(
      {.rows = side, .columns = side, .x = wide.get(), .amax = amax, .straight = {a.get(), scale}}, launch);
  gemm.a = gemm.b = {.data = a.get(), .scales = scale};
  gemm.c = c.get();
  const double ms = best_ms(device, stream, [&] { kernels.fp8_gemm(gemm, launch); });
  return 2.0 * static_cast<double>(side) * static_cast<double>(count) / (ms * 1e9);
}

}  // namespace

double Ceilings::milliseconds(const program::Instruction& i) const {
  if (product_tflops <= 0 || copy_gb_s <= 0) return 0;
  const double fp8 = fp8_tflops > 0 ? i.fp8_flops : 0;
  return (i.flops - fp8) / (product_tflops * 1e9) + (fp8 > 0 ? fp8 / (fp8_tflops * 1e9) : 0) +
         static_cast<double>(i.moved_bytes) / (copy_gb_s * 1e6);
}

Ceilings measure_ceilings(device::Device& device, DType compute, bool tf32, bool fp8) {
  const bool cpu = device.id().kind == device::Kind::cpu;
  const device::Stream stream = device.create_stream();
  Ceilings ceilings;
  try {
    ceilings.copy_gb_s = copy_speed(device, stream, int64_t{1} << (cpu ? 26 : 30));
    ceilings.product_tflops = product_speed(device, stream, cpu ? 1024 : 8192, compute, tf32);
    if (fp8) ceilings.fp8_tflops = fp8_speed(device, stream, cpu ? 1024 : 8192);
  } catch (...) {
    device.destroy_stream(stream);
    throw;
  }
  device.destroy_stream(stream);
  return ceilings;
}

}  // namespace lockstep::run
