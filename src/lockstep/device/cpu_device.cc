#include "lockstep/device/cpu_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/device/alignment.h"
#include "lockstep/device/cpu_features.h"

namespace lockstep::device {
namespace {

constexpr int64_t kMapFrom = int64_t{2} << 20;
constexpr int64_t kMost = INT64_MAX / 2;  // beyond any machine, and safe to round up

using Clock = std::chrono::steady_clock;

void* map_block(int64_t bytes) {
  void* memory =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // advice only: failure changes nothing
#endif
  return memory;
}

// `bytes` is what obtain() rounded up to, so it alone says how the block was made.
void release_block(void* memory, int64_t bytes) {
  if (bytes >= kMapFrom) {
    munmap(memory, static_cast<size_t>(bytes));
  } else {
    std::free(memory);
  }
}

}  // namespace

CpuDevice::CpuDevice(int64_t limit_bytes)
    : limit_(limit_bytes > 0 ? limit_bytes : host_memory().total_bytes) {
  if (limit_ <= 0) limit_ = kMost;  // no /proc here: let the system refuse
}

CpuDevice::~CpuDevice() {
  for (const auto& [memory, block] : blocks_) {
    if (block.source == nullptr) release_block(memory, block.bytes);  // a source frees its own
  }
}

Properties CpuDevice::properties() const {
  const HostMemory memory = host_memory();
  Properties properties;
  properties.name = cpu_name();
  properties.instruction_set = name_of(cpu_level());
  properties.memory_bytes = memory.total_bytes;
  properties.free_bytes = memory.available_bytes;
  return properties;
}

void* CpuDevice::obtain(int64_t bytes, bool counted) {
  LS_ASSERT(bytes >= 0);
  const std::lock_guard lock(mutex_);
  const int64_t left = limit_ - allocated_;
  if (bytes > kMost || (counted && bytes > left)) throw OutOfMemory{bytes, left};
  const int64_t rounded = base::round_up(std::max<int64_t>(bytes, 1), bytes >= kMapFrom ? 4096 : kAlignment);
  MemorySource* source = counted ? source_ : nullptr;
  void* memory = source != nullptr     ? source->allocate(rounded)
                 : rounded >= kMapFrom ? map_block(rounded)
                                       : std::aligned_alloc(kAlignment, static_cast<size_t>(rounded));
  if (memory == nullptr) throw OutOfMemory{bytes, std::min(left, host_memory().available_bytes)};
  blocks_.emplace(memory, Block{rounded, counted, source});
  if (counted) peak_ = std::max(peak_, allocated_ += rounded);
  return memory;
}

void CpuDevice::give_back(void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  LS_ASSERT(found != blocks_.end(), "this device did not allocate that memory");
  if (found->second.counted) allocated_ -= found->second.bytes;
  if (found->second.source != nullptr) {
    found->second.source->free(memory);
  } else {
    release_block(memory, found->second.bytes);
  }
  blocks_.erase(found);
}

void* CpuDevice::allocate(int64_t bytes) { return obtain(bytes, true); }
void CpuDevice::free(void* memory) { give_back(memory); }
void* CpuDevice::allocate_host(int64_t bytes) { return obtain(bytes, false); }
void CpuDevice::free_host(void* memory) { give_back(memory); }

int64_t CpuDevice::allocated_bytes() const {
  const std::lock_guard lock(mutex_);
  return allocated_;
}

int64_t CpuDevice::peak_allocated_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void CpuDevice::forget_peak_above(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  peak_ = std::max(allocated_, std::min(peak_, bytes));
}

void CpuDevice::copy(void* to, const void* from, int64_t bytes, CopyKind, Stream) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

void CpuDevice::copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t bytes,
                          int64_t rows, Stream) {
  if (bytes <= 0) return;
  LS_ASSERT(rows <= 1 || (to_pitch >= bytes && from_pitch >= bytes), "rows would overlap");
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                static_cast<size_t>(bytes));
  }
}

void CpuDevice::fill_zero(void* memory, int64_t bytes, Stream) {
  if (bytes > 0) std::memset(memory, 0, static_cast<size_t>(bytes));
}

Event CpuDevice::create_event() { return new Clock::time_point(Clock::now()); }
void CpuDevice::destroy_event(Event event) { delete static_cast<Clock::time_point*>(event); }
void CpuDevice::record(Event event, Stream) { *static_cast<Clock::time_point*>(event) = Clock::now(); }

double CpuDevice::milliseconds_between(Event first, Event second) {
  const auto span = *static_cast<Clock::time_point*>(second) - *static_cast<Clock::time_point*>(first);
  return std::chrono::duration<double, std::milli>(span).count();
}

void CpuDevice::begin_capture(Stream) { LS_ASSERT(can_capture(), "the CPU has no graphs"); }
Graph CpuDevice::end_capture(Stream) { return nullptr; }
void CpuDevice::launch(Graph, Stream) { LS_ASSERT(can_capture(), "the CPU has no graphs"); }
void CpuDevice::destroy_graph(Graph) {}

}  // namespace lockstep::device
