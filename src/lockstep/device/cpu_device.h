// The CPU as a device: memory of the host, work that has finished when a call returns.
//
// Streams are null and events are time stamps. Blocks of 2 MiB and more are mapped by themselves, so
// that they come zeroed, may use huge pages and go back to the system when freed.
#pragma once

#include <mutex>
#include <unordered_map>

#include "lockstep/device/device.h"

namespace lockstep::device {

class CpuDevice : public Device {
 public:
  // At most `limit_bytes` may be allocated at a time; 0: what the machine (or its control group) has.
  explicit CpuDevice(int64_t limit_bytes = 0);
  ~CpuDevice() override;
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  Id id() const override { return {Kind::cpu, 0}; }
  Properties properties() const override;

  void* allocate(int64_t bytes) override;
  void free(void* memory) override;
  int64_t allocated_bytes() const override;
  int64_t peak_allocated_bytes() const override;
  void forget_peak_above(int64_t bytes) override;
  void allocate_from(MemorySource* source) override { source_ = source; }
  void* allocate_host(int64_t bytes) override;
  void free_host(void* memory) override;

  Stream create_stream() override { return nullptr; }
  void destroy_stream(Stream) override {}
  void copy(void* to, const void* from, int64_t bytes, CopyKind kind, Stream stream) override;
  void copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t bytes,
                 int64_t rows, Stream stream) override;
  void fill_zero(void* memory, int64_t bytes, Stream stream) override;
  void synchronize(Stream) override {}

  Event create_event() override;
  void destroy_event(Event event) override;
  void record(Event event, Stream stream) override;
  void wait(Stream, Event) override {}
  void wait_for(Event) override {}
  bool done(Event) override { return true; }
  double milliseconds_between(Event first, Event second) override;

  bool can_capture() const override { return false; }
  void begin_capture(Stream stream) override;
  Graph end_capture(Stream stream) override;
  void launch(Graph graph, Stream stream) override;
  void destroy_graph(Graph graph) override;

 private:
  void* obtain(int64_t bytes, bool counted);
  void give_back(void* memory);

  struct Block {
    int64_t bytes = 0;
    bool counted = false;  // device memory; host staging memory is not
    MemorySource* source = nullptr;
  };
  mutable std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  MemorySource* source_ = nullptr;
  int64_t limit_, allocated_ = 0, peak_ = 0;
};

}  // namespace lockstep::device
