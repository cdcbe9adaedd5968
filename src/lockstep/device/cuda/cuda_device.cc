#include "lockstep/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/check.h"
#include "lockstep/device/cuda/peak.h"

namespace lockstep::device {
namespace {

cudaStream_t native_stream(Stream stream) { return reinterpret_cast<cudaStream_t>(stream); }
cudaEvent_t native_event(Event event) { return reinterpret_cast<cudaEvent_t>(event); }
cudaGraphExec_t native_graph(Graph graph) { return reinterpret_cast<cudaGraphExec_t>(graph); }

cudaMemcpyKind native_kind(CopyKind kind) {
  // What the device owns may lie in pinned host memory (optim.offload), so the pointers say where a copy
  // goes.
  return kind == CopyKind::device_to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDefault;
}

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, which, index));
  return value;
}

}  // namespace

CudaDevice::CudaDevice(int index) : index_(index) {
  int count = 0;
  CUDA_CHECK(cudaGetDeviceCount(&count));
  if (index < 0 || index >= count) {
    throw base::ConfigError(
        403,
        fmt::format("cuda:{} does not exist: {} GPU(s) visible; check run.device and CUDA_VISIBLE_DEVICES",
                    index, count));
  }
  make_current();
}

void CudaDevice::make_current() const { CUDA_CHECK(cudaSetDevice(index_)); }

void CudaDevice::make_current_quietly() const noexcept { static_cast<void>(cudaSetDevice(index_)); }

Properties CudaDevice::properties() const {
  make_current();
  cudaDeviceProp native{};
  CUDA_CHECK(cudaGetDeviceProperties(&native, index_));
  size_t free_bytes = 0, total_bytes = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  const int capability = native.major * 10 + native.minor;
  const double clock_hz = 1e3 * attribute(cudaDevAttrClockRate, index_);
  const PeakFlops peak = peak_flops(native.name, capability, native.multiProcessorCount, clock_hz);

  Properties properties;
  properties.name = native.name;
  properties.instruction_set = fmt::format("sm_{}", capability);
  properties.address =
      fmt::format("{:04x}:{:02x}:{:02x}.0", native.pciDomainID, native.pciBusID, native.pciDeviceID);
  properties.memory_bytes = static_cast<int64_t>(total_bytes);
  properties.free_bytes = static_cast<int64_t>(free_bytes);
  properties.fast_bf16 = capability >= 80;
  properties.fast_fp16 = capability >= 70;
  properties.fp8 = capability >= 89;
  properties.peak_flops_bf16 = peak.half;
  properties.peak_flops_fp32 = peak.fp32;
  return properties;
}

void* CudaDevice::allocate(int64_t bytes) {
  make_current();
  const int64_t size = std::max<int64_t>(bytes, 1);  // a pointer to nothing is still a pointer to free
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(size));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky, but it would be seen by the next launch
    size_t free_bytes = 0, total_bytes = 0;
    CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    throw OutOfMemory{bytes, static_cast<int64_t>(free_bytes)};
  }
  if (error != cudaSuccess) throw_cuda_error(error, "cudaMalloc");
  const std::lock_guard lock(mutex_);
  sizes_.emplace(memory, size);
  allocated_ += size;
  peak_ = std::max(peak_, allocated_);
  return memory;
}

void CudaDevice::free(void* memory) {
  if (!memory) return;
  {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(memory);
    if (found != sizes_.end()) {
      allocated_ -= found->second;
      sizes_.erase(found);
    }
  }
  make_current_quietly();
  static_cast<void>(cudaFree(memory));
}

int64_t CudaDevice::allocated_bytes() const {
  const std::lock_guard lock(mutex_);
  return allocated_;
}

int64_t CudaDevice::peak_allocated_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void CudaDevice::forget_peak_above(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  peak_ = std::max(allocated_, std::min(peak_, bytes));
}

void* CudaDevice::allocate_host(int64_t bytes) {
  make_current();
  void* memory = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)), cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw base::IoError(412, fmt::format("{} bytes of host memory could not be pinned for cuda:{}; free host "
                                         "memory, or raise the container's or cgroup's memory limit",
                                         bytes, index_));
  }
  if (error != cudaSuccess) throw_cuda_error(error, "cudaHostAlloc");
  return memory;
}

void CudaDevice::free_host(void* memory) {
  if (!memory) return;
  make_current_quietly();
  static_cast<void>(cudaFreeHost(memory));
}

Stream CudaDevice::create_stream() {
  make_current();
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return reinterpret_cast<Stream>(stream);
}

void CudaDevice::destroy_stream(Stream stream) {
  if (!stream) return;
  make_current_quietly();
  static_cast<void>(cudaStreamDestroy(native_stream(stream)));
}

void CudaDevice::copy(void* to, const void* from, int64_t bytes, CopyKind kind, Stream stream) {
  if (bytes == 0) return;
  make_current();
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), native_kind(kind), native_stream(stream)));
}

void CudaDevice::copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t bytes,
                           int64_t rows, Stream stream) {
  if (bytes <= 0 || rows <= 0) return;
  LS_ASSERT(rows == 1 || (to_pitch >= bytes && from_pitch >= bytes), "rows would overlap");
  make_current();
  // The pitch of a single row means nothing, but the runtime insists on one that holds the row.
  const auto pitch = [&](int64_t given) { return static_cast<size_t>(std::max(given, bytes)); };
  CUDA_CHECK(cudaMemcpy2DAsync(to, pitch(to_pitch), from, pitch(from_pitch), static_cast<size_t>(bytes),
                               static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, native_stream(stream)));
}

void CudaDevice::fill_zero(void* memory, int64_t bytes, Stream stream) {
  if (bytes == 0) return;
  make_current();
  CUDA_CHECK(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), native_stream(stream)));
}

void CudaDevice::synchronize(Stream stream) {
  make_current();
  CUDA_CHECK(cudaStreamSynchronize(native_stream(stream)));
}

Event CudaDevice::create_event() {
  make_current();
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));  // with time stamps
  return reinterpret_cast<Event>(event);
}

void CudaDevice::destroy_event(Event event) {
  if (!event) return;
  make_current_quietly();
  static_cast<void>(cudaEventDestroy(native_event(event)));
}

void CudaDevice::record(Event event, Stream stream) {
  make_current();
  CUDA_CHECK(cudaEventRecord(native_event(event), native_stream(stream)));
}

void CudaDevice::wait(Stream stream, Event event) {
  make_current();
  CUDA_CHECK(cudaStreamWaitEvent(native_stream(stream), native_event(event), 0));
}

void CudaDevice::wait_for(Event event) {
  make_current();
  CUDA_CHECK(cudaEventSynchronize(native_event(event)));
}

bool CudaDevice::done(Event event) {
  make_current();
  const cudaError_t state = cudaEventQuery(native_event(event));
  if (state == cudaErrorNotReady) return false;
  CUDA_CHECK(state);
  return true;
}

double CudaDevice::milliseconds_between(Event first, Event second) {
  make_current();
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, native_event(first), native_event(second)));
  return milliseconds;
}

void CudaDevice::begin_capture(Stream stream) {
  make_current();
  // Thread-local: a loader that pins memory on another thread meanwhile must not spoil the capture.
  CUDA_CHECK(cudaStreamBeginCapture(native_stream(stream), cudaStreamCaptureModeThreadLocal));
}

Graph CudaDevice::end_capture(Stream stream) {
  make_current();
  cudaGraph_t captured = nullptr;
  CUDA_CHECK(cudaStreamEndCapture(native_stream(stream), &captured));
  const auto release = [](cudaGraph_t graph) { static_cast<void>(cudaGraphDestroy(graph)); };
  const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, decltype(release)> owner(captured, release);
  cudaGraphExec_t graph = nullptr;
  CUDA_CHECK(cudaGraphInstantiate(&graph, captured, 0));
  return reinterpret_cast<Graph>(graph);
}

void CudaDevice::launch(Graph graph, Stream stream) {
  make_current();
  CUDA_CHECK(cudaGraphLaunch(native_graph(graph), native_stream(stream)));
}

void CudaDevice::destroy_graph(Graph graph) {
  if (!graph) return;
  make_current_quietly();
  static_cast<void>(cudaGraphExecDestroy(native_graph(graph)));
}

}  // namespace lockstep::device
