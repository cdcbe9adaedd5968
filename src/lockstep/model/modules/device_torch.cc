#include "lockstep/model/modules/device_torch.h"

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"

// libgomp comes with LibTorch; its header does not.
extern "C" {
void omp_set_num_threads(int);
int omp_get_max_threads(void);
}

namespace lockstep::model {

namespace {

constexpr const char* kOrCpu = ", or set run.device=cpu";

// The half that runs here says where the other one must lie: both come from one build.
std::filesystem::path path_of_cuda_half() {
  Dl_info info{};
  const bool found = ::dladdr(reinterpret_cast<const void*>(&at::globalContext), &info) != 0;
  const std::filesystem::path cpu = found && info.dli_fname != nullptr ? info.dli_fname : "libtorch_cpu.so";
  return cpu.parent_path() / "libtorch_cuda.so";
}

void open_cuda_half() {
  const std::filesystem::path path = path_of_cuda_half();
  if (!std::filesystem::exists(path)) {
    throw base::ConfigError(
        174, "a torch::nn::Module on a GPU needs LibTorch's CUDA library, but there is no " + path.string() +
                 ": build Lockstep and this program with LOCKSTEP_TORCH set to the folder of a full PyTorch "
                 "2.11 (pip install torch==2.11.0)" +
                 kOrCpu);
  }
  // cuBLAS repeats its bits only with a workspace of its own for each stream, which is read when it is
  // loaded.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* why = ::dlerror();
    throw base::ConfigError(
        174,
        "LibTorch's CUDA library cannot be loaded: " + std::string(why != nullptr ? why : path.string()) +
            ": install its dependencies (pip install torch==2.11.0 includes all of them)" + kOrCpu);
  }
}

}  // namespace

void load_torch_cuda() {
  if (!c10::impl::hasDeviceGuardImpl(at::kCUDA)) open_cuda_half();
  if (at::globalContext().hasCUDA()) return;
  throw base::ConfigError(
      174, std::string("LibTorch finds no GPU, although this run has one: it was probably asked before its "
                       "CUDA library was loaded (at::manual_seed does that), and remembers the answer. "
                       "Create modules and seed inside the model function passed to train()") +
               kOrCpu);
}

at::Device torch_device(const device::Id& id) {
  if (id.kind == device::Kind::cpu) return at::Device(at::kCPU);
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(id.index));
}

// What decides which algorithms LibTorch takes on CUDA.
struct OnDevice::Settings {
  at::Context& context = at::globalContext();
  bool algorithms = context.deterministicAlgorithms(), warns = context.deterministicAlgorithmsWarnOnly(),
       fills = context.deterministicFillUninitializedMemory(), cudnn = context.deterministicCuDNN(),
       tries = context.benchmarkCuDNN(), tf32_products = context.allowTF32CuBLAS(),
       tf32_convolutions = context.allowTF32CuDNN();

  void set(bool exact, bool tf32) {
    context.setAllowTF32CuBLAS(tf32);
    context.setAllowTF32CuDNN(tf32);
    if (!exact) return;
    context.setDeterministicAlgorithms(true, false);
    context.setDeterministicFillUninitializedMemory(false);  // for debugging, and slow
    context.setDeterministicCuDNN(true);
    context.setBenchmarkCuDNN(false);
  }
  ~Settings() {
    context.setAllowTF32CuBLAS(tf32_products);
    context.setAllowTF32CuDNN(tf32_convolutions);
    context.setDeterministicAlgorithms(algorithms, warns);
    context.setDeterministicFillUninitializedMemory(fills);
    context.setDeterministicCuDNN(cudnn);
    context.setBenchmarkCuDNN(tries);
  }
};

namespace {

// A stream that LibTorch did not make is known to it by its address (c10::cuda::getStreamFromExternal does
// the same, in a library that is not linked). Asked back, so that another version's other mind is noticed.
c10::Stream external_stream(at::Device device, device::Stream stream) {
  const c10::Stream known(c10::Stream::UNSAFE, device, reinterpret_cast<int64_t>(stream));
  LS_ASSERT(known.native_handle() == stream, "LibTorch does not accept the stream of the compute lane");
  return known;
}

}  // namespace

OnDevice::OnDevice(const device::Id& id, const kernels::Launch& launch, Manner manner)
    : device_(torch_device(id)), threads_(omp_get_max_threads()) {
  if (device_.is_cpu()) {
    if (manner.exact) omp_set_num_threads(1);
    return;
  }
  before_ = std::make_unique<Settings>();
  before_->set(manner.exact, launch.tf32);
  stream_.emplace(launch.stream != nullptr
                      ? external_stream(device_, launch.stream)
                      : c10::impl::getDeviceGuardImpl(device_.type())->getStream(device_));
}

OnDevice::~OnDevice() {
  if (device_.is_cpu()) omp_set_num_threads(threads_);
}

namespace {

// Counts what LibTorch allocates for this thread, as its profiler would.
class CpuMeter : public MemoryMeter {
 public:
  int64_t now() override { return counter_->now; }
  int64_t peak_since_last() override { return std::exchange(counter_->peak, counter_->now); }

 private:
  struct Counter : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      now += bytes;
      peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }
    int64_t now = 0, peak = 0;
  };
  std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, counter_};
};

class CudaMeter : public MemoryMeter {
 public:
  explicit CudaMeter(at::Device device)
      : device_(device), allocator_(*c10::getDeviceAllocator(device.type())), start_(held().current) {
    allocator_.resetPeakStats(device_.index());
  }
  int64_t now() override { return held().current - start_; }
  int64_t peak_since_last() override {
    const int64_t peak = held().peak - start_;
    allocator_.resetPeakStats(device_.index());
    return peak;
  }

 private:
  c10::CachingAllocator::Stat held() const {
    return allocator_.getDeviceStats(device_.index())
        .allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  }
  at::Device device_;
  c10::DeviceAllocator& allocator_;
  int64_t start_;
};

}  // namespace

std::unique_ptr<MemoryMeter> meter_on(at::Device device) {
  if (device.is_cpu()) return std::make_unique<CpuMeter>();
  return std::make_unique<CudaMeter>(device);
}

}  // namespace lockstep::model

// For a library that does not link LibTorch (model/modules/torch_cuda.cc).
extern "C" void lockstep_load_torch_cuda() { lockstep::model::load_torch_cuda(); }
