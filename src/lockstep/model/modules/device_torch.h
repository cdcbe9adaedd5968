// LibTorch on the device of a run: its tensors lie in the run's memory, its work goes to the run's stream.
//
//     const OnDevice here(frame.device->id(), frame.launch, {.exact = true});
//     at::Tensor x = view_of(frame.in("hidden"), sizes, at::kFloat, here.device());   // then any ATen call
//
// On a GPU this needs libtorch_cuda.so: a gigabyte that only programs load whose modules train there.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>

#include <memory>
#include <optional>
#include <string>

#include "lockstep/device/device.h"
#include "lockstep/kernels/launch.h"

namespace lockstep::model {

// Loads LibTorch's CUDA half, once. ConfigError 174: it is not there, does not load, or comes too late,
// because LibTorch has looked for GPUs before and found none for good.
void load_torch_cuda();

at::Device torch_device(const device::Id& id);

// While it lives, what this thread asks of LibTorch runs on that device and stream.
class OnDevice {
 public:
  struct Manner {
    // The same bits each time. On the CPU: on one thread, because sums depend on their number. On CUDA:
    // deterministic algorithms alone; an operation that has none is refused by LibTorch, with its name.
    bool exact = true;
  };
  // `launch.stream` null on CUDA: LibTorch's own current one.
  OnDevice(const device::Id& id, const kernels::Launch& launch, Manner manner);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  at::Device device() const { return device_; }

 private:
  struct Settings;  // of LibTorch for all threads: put back at the end
  at::Device device_;
  int threads_;  // of OpenMP, before
  std::unique_ptr<Settings> before_;
  std::optional<c10::StreamGuard> stream_;
};

// What LibTorch holds on a device, for one trial of a module: from its caching allocator's statistics on
// CUDA, by counting what this thread allocates on the CPU.
class MemoryMeter {
 public:
  virtual ~MemoryMeter() = default;
  virtual int64_t now() = 0;              // bytes since the meter was made
  virtual int64_t peak_since_last() = 0;  // the most of them since this was asked for last
};
std::unique_ptr<MemoryMeter> meter_on(at::Device device);

}  // namespace lockstep::model
