// How LibTorch is put onto a device: what of it can be seen without a GPU.
#include "lockstep/model/modules/device_torch.h"

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include "lockstep/base/refusal.h"

namespace lockstep::model {
namespace {

// A GPU as far as streams go: the current one of the one device.
struct FakeGpu final : c10::impl::DeviceGuardImplInterface {
  mutable c10::Stream current{c10::Stream::UNSAFE, {at::kCUDA, 0}, 7};
  mutable c10::DeviceIndex device = 0;
  FakeGpu() { c10::impl::registerDeviceGuard(at::kCUDA, this); }
  ~FakeGpu() override {
    c10::impl::device_guard_impl_registry[static_cast<size_t>(at::kCUDA)].store(nullptr);
  }
  c10::DeviceType type() const override { return at::kCUDA; }
  c10::Device exchangeDevice(c10::Device to) const override {
    return {at::kCUDA, std::exchange(device, to.index())};
  }
  c10::Device getDevice() const override { return {at::kCUDA, device}; }
  void setDevice(c10::Device to) const override { device = to.index(); }
  void uncheckedSetDevice(c10::Device to) const noexcept override { device = to.index(); }
  c10::Stream getStream(c10::Device) const noexcept override { return current; }
  c10::Stream exchangeStream(c10::Stream to) const noexcept override { return std::exchange(current, to); }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(stream.id());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};

TEST(TorchDevice, WorkGoesToTheStreamItIsHanded) {
  FakeGpu gpu;
  int stream = 0;  // any address
  {
    const OnDevice here({device::Kind::cuda, 0}, {.stream = &stream}, {});
    EXPECT_EQ(here.device(), at::Device(at::kCUDA, 0));
    EXPECT_EQ(gpu.current.native_handle(), &stream);
  }
  EXPECT_EQ(gpu.current.id(), 7) << "what was current before";
  const OnDevice trial({device::Kind::cuda, 0}, {}, {});
  EXPECT_EQ(gpu.current.id(), 7) << "no stream: the current one";
}

TEST(TorchDevice, AlgorithmsRepeatTheirBitsWhereThatIsAsked) {
  const FakeGpu gpu;
  at::Context& context = at::globalContext();
  for (const bool exact : {true, false}) {
    for (const bool tf32 : {true, false}) {
      {
        const OnDevice here({device::Kind::cuda, 0}, {.tf32 = tf32}, {.exact = exact});
        EXPECT_EQ(context.deterministicAlgorithms(), exact);
        EXPECT_EQ(context.deterministicCuDNN(), exact);
        EXPECT_EQ(context.allowTF32CuBLAS(), tf32);
        EXPECT_EQ(context.allowTF32CuDNN(), tf32);
      }
      EXPECT_FALSE(context.deterministicAlgorithms());
      EXPECT_FALSE(context.deterministicCuDNN());
      EXPECT_FALSE(context.allowTF32CuBLAS());
      EXPECT_TRUE(context.allowTF32CuDNN()) << "LibTorch's default";
    }
  }
}

TEST(TorchDevice, TheMissingHalfIsNamedWithARemedy) {
  try {
    load_torch_cuda();
    GTEST_SKIP() << "a whole LibTorch and a GPU are here";
  } catch (const base::ConfigError& error) {
    EXPECT_EQ(error.number(), 174);
    EXPECT_NE(std::string(error.what()).find("run.device=cpu"), std::string::npos) << error.what();
  }
}

TEST(TorchDevice, TheMeterSeesWhatIsHeldAndThePeak) {
  const auto meter = meter_on(at::kCPU);
  constexpr int64_t kBytes = 4096 * 4;
  at::Tensor kept = at::zeros({4096});
  EXPECT_EQ(meter->now(), kBytes);
  { const at::Tensor passing = at::zeros({4096}); }
  EXPECT_EQ(meter->now(), kBytes);
  EXPECT_EQ(meter->peak_since_last(), 2 * kBytes);
  EXPECT_EQ(meter->peak_since_last(), kBytes);
  kept = at::Tensor();
  EXPECT_EQ(meter->now(), 0);
}

}  // namespace
}  // namespace lockstep::model
