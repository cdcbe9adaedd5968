#include "lockstep/device/cpu_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::device {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(CpuDevice, MemoryIsAlignedCountedAndItsOwn) {
  CpuDevice device;
  int64_t expected_at_least = 0;
  std::vector<void*> blocks;
  for (const int64_t bytes :
       {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{257}, 2 * kMiB - 1, 2 * kMiB, 5 * kMiB + 3}) {
    void* memory = device.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u) << bytes;
    std::memset(memory, static_cast<int>(blocks.size()), static_cast<size_t>(bytes));
    blocks.push_back(memory);
    expected_at_least += bytes;
    EXPECT_GE(device.allocated_bytes(), expected_at_least);
  }
  for (size_t i = 1; i < blocks.size(); ++i) EXPECT_EQ(*static_cast<char*>(blocks[i]), static_cast<char>(i));
  const int64_t peak = device.peak_allocated_bytes();
  for (void* memory : blocks) device.free(memory);
  EXPECT_EQ(device.allocated_bytes(), 0);
  EXPECT_EQ(device.peak_allocated_bytes(), peak);
}

TEST(CpuDevice, LimitIsKeptAndSaysWhatWasLeft) {
  CpuDevice device(10 * kMiB);
  void* first = device.allocate(8 * kMiB);
  try {
    device.allocate(3 * kMiB);
    FAIL() << "3 MiB of the remaining 2 were given";
  } catch (const OutOfMemory& refusal) {
    EXPECT_EQ(refusal.asked_bytes, 3 * kMiB);
    EXPECT_EQ(refusal.free_bytes, 2 * kMiB);
  }
  EXPECT_EQ(device.allocated_bytes(), 8 * kMiB);
  device.free(first);
  device.free(device.allocate(10 * kMiB));
}

TEST(CpuDevice, MoreThanTheMachineHasIsRefused) {
  CpuDevice device;
  EXPECT_THROW(device.allocate(INT64_MAX), OutOfMemory);
  EXPECT_THROW(device.allocate(int64_t{1} << 50), OutOfMemory);
  EXPECT_EQ(device.allocated_bytes(), 0);
}

TEST(CpuDevice, HostMemoryIsNotDeviceMemory) {
  CpuDevice device(kMiB);
  void* staging = device.allocate_host(4 * kMiB);
  EXPECT_EQ(device.allocated_bytes(), 0);
  device.free_host(staging);
}

TEST(CpuDevice, ForeignMemoryIsABug) {
  CpuDevice device;
  int foreign = 0;
  EXPECT_THROW(device.free(&foreign), base::Bug);
  EXPECT_NO_THROW(device.free(nullptr));
  EXPECT_THROW(device.begin_capture(nullptr), base::Bug);
}

TEST(CpuDevice, CopiesRowsOfAnyPitch) {
  CpuDevice device;
  const std::vector<int16_t> from = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<int16_t> to(8, -1);
  device.copy_rows(to.data() + 1, 6, from.data() + 1, 8, 4, 2, nullptr);
  EXPECT_EQ(to, (std::vector<int16_t>{-1, 2, 3, -1, 6, 7, -1, -1}));
  device.copy_rows(to.data(), 0, from.data(), 0, 2, 1, nullptr);  // the pitch of one row means nothing
  EXPECT_EQ(to[0], 1);
  device.copy_rows(to.data(), 4, from.data(), 4, 0, 3, nullptr);
  device.copy_rows(to.data(), 4, from.data(), 4, 4, 0, nullptr);
  EXPECT_EQ(to, (std::vector<int16_t>{1, 2, 3, -1, 6, 7, -1, -1}));
  EXPECT_THROW(device.copy_rows(to.data(), 2, from.data(), 8, 4, 2, nullptr), base::Bug);
}

TEST(CpuDevice, CopiesAndClears) {
  CpuDevice device;
  const std::vector<int> values = {1, 2, 3, 4};
  std::vector<int> back(4);
  void* memory = device.allocate(16);
  device.copy(memory, values.data(), 16, CopyKind::host_to_device, nullptr);
  device.copy(back.data(), memory, 16, CopyKind::device_to_host, nullptr);
  EXPECT_EQ(back, values);
  device.fill_zero(memory, 8, nullptr);
  device.copy(back.data(), memory, 16, CopyKind::device_to_host, nullptr);
  EXPECT_EQ(back, (std::vector<int>{0, 0, 3, 4}));
  device.free(memory);
}

TEST(CpuDevice, EventsTellTheTime) {
  CpuDevice device;
  Event first = device.create_event(), second = device.create_event();
  device.record(first, nullptr);
  device.record(second, nullptr);
  EXPECT_GE(device.milliseconds_between(first, second), 0);
  EXPECT_LE(device.milliseconds_between(second, first), 0);
  device.destroy_event(first);
  device.destroy_event(second);
}

TEST(CpuDevice, PropertiesNameTheMachine) {
  const Properties properties = CpuDevice().properties();
  EXPECT_FALSE(properties.name.empty());
  EXPECT_FALSE(properties.instruction_set.empty());
  EXPECT_GT(properties.memory_bytes, 0);
  EXPECT_GT(properties.free_bytes, 0);
  EXPECT_LE(properties.free_bytes, properties.memory_bytes);
}

}  // namespace
}  // namespace lockstep::device
