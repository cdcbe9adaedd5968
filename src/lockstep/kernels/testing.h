// What the kernel tests share: every test runs on every device that is here, against an fp64 reference
// written out in the test.
//
//     TEST_P(GeluTest, MatchesReference) {
//       Memory x = upload(values, DType::bf16), y = garbage(values.size(), DType::bf16);
//       run({&y}, [&] { kernels().activate({kind, DType::bf16, count, x.data(), y.data()}, launch()); });
//       expect_close(download(y), expected, tolerance(DType::bf16));
//     }
//     LOCKSTEP_ON_EVERY_DEVICE(GeluTest);
//
// run() also proves that a kernel repeats itself: same bits at 1, 2 and 4 threads, or in two launches.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/device/cpu_features.h"
#include "lockstep/device/device.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/kernels/levels.h"
#include "lockstep/kernels/table.h"

namespace lockstep::kernels::testing {

using device::DType;
using Values = std::vector<double>;

// Device memory that remembers its type and goes back by itself.
class Memory {
 public:
  Memory(device::Device& device, int64_t count, DType type)
      : device_(&device), data_(device.allocate(count * device::size_of(type))), count_(count), type_(type) {}
  ~Memory() {
    if (data_ != nullptr) device_->free(data_);
  }
  Memory(Memory&& other) noexcept
      : device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        count_(other.count_),
        type_(other.type_) {}
  Memory& operator=(Memory&&) = delete;

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t count() const { return count_; }
  DType type() const { return type_; }

  std::vector<char> bytes() const {
    std::vector<char> host(static_cast<size_t>(count_ * device::size_of(type_)));
    device_->copy(host.data(), data_, static_cast<int64_t>(host.size()), device::CopyKind::device_to_host,
                  nullptr);
    device_->synchronize(nullptr);
    return host;
  }
  void set_bytes(const std::vector<char>& host) const {
    device_->copy(data_, host.data(), static_cast<int64_t>(host.size()), device::CopyKind::host_to_device,
                  nullptr);
    device_->synchronize(nullptr);
  }

 private:
  device::Device* device_;
  void* data_;
  int64_t count_;
  DType type_;
};

struct Tolerance {
  double relative, absolute;
};

// A few roundings of the type, for values of size about one; `size` scales the absolute part.
inline Tolerance tolerance(DType type, double size = 1) {
  if (type == DType::bf16) return {1.0 / 128, size / 256};
  if (type == DType::f16) return {1.0 / 1024, size / 1024};
  return {2e-5, size * 2e-6};
}

inline void expect_close(const Values& actual, const Values& expected, Tolerance allowed,
                         const std::string& what = "") {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double limit = allowed.absolute + allowed.relative * std::abs(expected[i]);
    ASSERT_LE(std::abs(actual[i] - expected[i]), limit)
        << what << " element " << i << ": " << actual[i] << " instead of " << expected[i];
  }
}

// A matrix of so many columns with its rows `row` values apart, and large numbers between them.
inline Values rows_apart(const Values& matrix, int64_t columns, int64_t row) {
  Values wide(matrix.size() / static_cast<size_t>(columns) * static_cast<size_t>(row), 30000);
  for (size_t i = 0; i < matrix.size(); ++i)
    wide[i / static_cast<size_t>(columns) * static_cast<size_t>(row) + i % static_cast<size_t>(columns)] =
        matrix[i];
  return wide;
}

// Columns begin to end of a matrix of so many columns.
inline Values columns_of(const Values& matrix, int64_t columns, int64_t begin, int64_t end) {
  Values part;
  for (int64_t row = 0; row < static_cast<int64_t>(matrix.size()) / columns; ++row)
    part.insert(part.end(), matrix.begin() + row * columns + begin, matrix.begin() + row * columns + end);
  return part;
}

// The nearest number of the type, ties to even: an independent statement of what kernels do with bits.
inline double round_to(DType type, double value) {
  if (!std::isfinite(value) || value == 0) return value;
  const int digits = type == DType::bf16 ? 8 : type == DType::f16 ? 11 : 24;
  const int lowest = type == DType::f16 ? -14 : -126;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
  const double unit = std::ldexp(1.0, std::max(exponent - 1, lowest) - (digits - 1));
  const double rounded = std::nearbyint(value / unit) * unit;
  const double largest = type == DType::f16 ? 65504 : std::ldexp(2 - std::ldexp(1.0, 1 - digits), 127);
  return std::abs(rounded) > largest ? std::copysign(INFINITY, value) : rounded;
}

inline double widen_bits(DType type, uint16_t bits) {
  const int fraction_bits = type == DType::bf16 ? 7 : 10, bias = type == DType::bf16 ? 127 : 15;
  const int exponent = (bits & 0x7FFF) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 2 * bias + 1) return fraction != 0 ? NAN : sign * INFINITY;
  const int scale = std::max(exponent, 1) - bias - fraction_bits;
  return sign * std::ldexp(fraction + (exponent > 0 ? 1 << fraction_bits : 0), scale);
}

inline uint16_t narrow_bits(DType type, double value) {
  const int fraction_bits = type == DType::bf16 ? 7 : 10, bias = type == DType::bf16 ? 127 : 15;
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const int top = (2 * bias + 1) << fraction_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | top | (1 << (fraction_bits - 1)));
  const double magnitude = std::abs(round_to(type, value));
  if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | top);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int biased = magnitude == 0 ? 0 : std::max(exponent - 1 + bias, 0);
  const double units = std::ldexp(magnitude, bias - std::max(biased, 1) + fraction_bits);
  const int implied = biased > 0 ? 1 << fraction_bits : 0;
  return static_cast<uint16_t>(sign | ((biased << fraction_bits) + static_cast<int>(units) - implied));
}

inline Values random_values(int64_t count, uint32_t seed, double deviation = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0, deviation);
  Values values(static_cast<size_t>(count));
  for (double& value : values) value = normal(generator);
  return values;
}

inline Values rounded(Values values, DType type) {
  for (double& value : values) value = round_to(type, value);
  return values;
}

// A fixture whose parameter names a table: "cpu_v3", "cpu_v4", "cpu_generic" or "cuda".
class KernelTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "cuda") {
      const device::CudaAvailability cuda = device::cuda_availability();
      if (cuda.devices == 0) GTEST_SKIP() << "no CUDA here: " << cuda.why_not;
      device_ = device::open({device::Kind::cuda, 0});
      kernels_ = &kernels_for(device::Kind::cuda);
      return;
    }
    device_ = device::open({device::Kind::cpu, 0});
#if defined(__x86_64__)
    const auto needed = GetParam() == "cpu_v4" ? device::CpuLevel::v4 : device::CpuLevel::v3;
    if (device::cpu_level() < needed) GTEST_SKIP() << "this processor is " << name_of(device::cpu_level());
    kernels_ = GetParam() == "cpu_v4" ? &cpu_v4::table() : &cpu_v3::table();
#else
    kernels_ = &cpu_generic::table();
#endif
  }
  void TearDown() override { workspace_.reset(); }

  bool on_cpu() const { return GetParam() != "cuda"; }
  const Kernels& kernels() const { return *kernels_; }
  device::Device& device() const { return *device_; }

  // On CUDA once as chosen, and then by everybody who takes what `engine` asks about: FlashAttention, cuDNN,
  // cuDNN with its backward pass cut as that of a long sequence, our own kernels.
  static void on_every_attention(const std::function<std::string()>& engine,
                                 const std::function<void()>& body) {
    const std::string preferred = engine();
    {
      SCOPED_TRACE(preferred);
      body();
    }
    if (preferred == "own") return;
    for (const std::string name : {"flash", "cudnn", "pieces", "own"}) {
      SCOPED_TRACE(name);
      ::setenv("LOCKSTEP_ATTENTION", name.c_str(), 1);
      const bool taken = engine().find(name) != std::string::npos;
      EXPECT_TRUE(taken || name != "own") << engine();
      if (taken) body();
    }
    ::unsetenv("LOCKSTEP_ATTENTION");
  }

  // A launch with `bytes` of scratch full of NaNs.
  Launch launch(int64_t bytes = 0) {
    if (!workspace_ || workspace_->count() < bytes) {
      workspace_.reset();
      workspace_ = std::make_unique<Memory>(*device_, std::max<int64_t>(bytes, 256), DType::u8);
      workspace_->set_bytes(std::vector<char>(static_cast<size_t>(workspace_->count()), '\xFF'));
    }
    return {nullptr, workspace_->data(), workspace_->count()};
  }

  Memory garbage(int64_t count, DType type) const {
    Memory memory(*device_, count, type);
    memory.set_bytes(std::vector<char>(static_cast<size_t>(count * device::size_of(type)), '\xFF'));
    return memory;
  }

  Memory upload(const Values& values, DType type) const {
    Memory memory(*device_, static_cast<int64_t>(values.size()), type);
    std::vector<char> bytes(values.size() * static_cast<size_t>(device::size_of(type)));
    for (size_t i = 0; i < values.size(); ++i) put(bytes.data(), i, type, values[i]);
    memory.set_bytes(bytes);
    return memory;
  }

  Memory upload_ints(const std::vector<int32_t>& values) const { return upload_plain(values, DType::i32); }

  template <class T>
  Memory upload_plain(const std::vector<T>& values, DType type = DType::u8) const {
    const auto size = static_cast<int64_t>(values.size() * sizeof(T));
    Memory memory(*device_, size / device::size_of(type), type);
    std::vector<char> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    memory.set_bytes(bytes);
    return memory;
  }

  Values download(const Memory& memory) const {
    const std::vector<char> bytes = memory.bytes();
    Values values(static_cast<size_t>(memory.count()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = get(bytes.data(), i, memory.type());
    return values;
  }

  template <class T>
  T download_plain(const Memory& memory) const {
    T value;
    const std::vector<char> bytes = memory.bytes();
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  // Runs it several times from the same state and expects the same bits in every output.
  void run(const std::vector<const Memory*>& outputs, const std::function<void()>& launch_it) {
    std::vector<std::vector<char>> before, first;
    for (const Memory* output : outputs) before.push_back(output->bytes());
    const int threads_before = device::thread_count();
    for (const int threads : {1, 2, 4}) {
      for (size_t i = 0; i < outputs.size(); ++i) outputs[i]->set_bytes(before[i]);
      device::set_thread_count(threads);
      launch_it();
      device::set_thread_count(threads_before);
      device_->synchronize(nullptr);
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (threads == 1) {
          first.push_back(outputs[i]->bytes());
        } else {
          ASSERT_EQ(outputs[i]->bytes() == first[i], true)
              << "output " << i << " differs at " << threads << " threads";
        }
      }
    }
  }

 private:
  static void put(char* bytes, size_t i, DType type, double value) {
    if (type == DType::f32) {
      const auto narrow = static_cast<float>(value);
      std::memcpy(bytes + 4 * i, &narrow, 4);
    } else if (type == DType::f64) {
      std::memcpy(bytes + 8 * i, &value, 8);
    } else {
      const uint16_t narrow = narrow_bits(type, value);
      std::memcpy(bytes + 2 * i, &narrow, 2);
    }
  }
  static double get(const char* bytes, size_t i, DType type) {
    if (type == DType::f32) {
      float value;
      std::memcpy(&value, bytes + 4 * i, 4);
      return value;
    }
    if (type == DType::f64) {
      double value;
      std::memcpy(&value, bytes + 8 * i, 8);
      return value;
    }
    uint16_t value;
    std::memcpy(&value, bytes + 2 * i, 2);
    return widen_bits(type, value);
  }

  std::unique_ptr<device::Device> device_;
  const Kernels* kernels_ = nullptr;
  std::unique_ptr<Memory> workspace_;
};

constexpr DType kEdgeTypes[] = {DType::f32, DType::bf16, DType::f16};

#if defined(__x86_64__)
#define LOCKSTEP_CPU_TABLES "cpu_v3", "cpu_v4"
#else
#define LOCKSTEP_CPU_TABLES "cpu_generic"
#endif
#define LOCKSTEP_ON_EVERY_DEVICE(Fixture)                                                    \
  INSTANTIATE_TEST_SUITE_P(Devices, Fixture, ::testing::Values(LOCKSTEP_CPU_TABLES, "cuda"), \
                           [](const ::testing::TestParamInfo<std::string>& device) { return device.param; })

}  // namespace lockstep::kernels::testing
