// One NVIDIA GPU behind the Device interface: memory, streams, events and graphs of the CUDA runtime.
//
// May be used from any thread; each call makes its GPU current for the calling thread. Functions that
// release something never throw, for they run in destructors: a lost device has been reported by then.
#pragma once

#include <mutex>
#include <unordered_map>

#include "lockstep/device/device.h"

namespace lockstep::device {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index);
  Id id() const override { return {Kind::cuda, index_}; }
  Properties properties() const override;

  void* allocate(int64_t bytes) override;
  void free(void* memory) override;
  int64_t allocated_bytes() const override;
  int64_t peak_allocated_bytes() const override;
  void forget_peak_above(int64_t bytes) override;
  void* allocate_host(int64_t bytes) override;
  void free_host(void* memory) override;

  Stream create_stream() override;
  void destroy_stream(Stream stream) override;
  void copy(void* to, const void* from, int64_t bytes, CopyKind kind, Stream stream) override;
  void copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t bytes,
                 int64_t rows, Stream stream) override;
  void fill_zero(void* memory, int64_t bytes, Stream stream) override;
  void synchronize(Stream stream) override;

  Event create_event() override;
  void destroy_event(Event event) override;
  void record(Event event, Stream stream) override;
  void wait(Stream stream, Event event) override;
  void wait_for(Event event) override;
  bool done(Event event) override;
  double milliseconds_between(Event first, Event second) override;

  bool can_capture() const override { return true; }
  void begin_capture(Stream stream) override;
  Graph end_capture(Stream stream) override;
  void launch(Graph graph, Stream stream) override;
  void destroy_graph(Graph graph) override;

  std::string begin_trace() override;
  void tag(int64_t value) override;
  std::vector<Traced> end_trace() override;

 private:
  void make_current() const;
  void make_current_quietly() const noexcept;

  const int index_;
  mutable std::mutex mutex_;  // of what follows
  std::unordered_map<void*, int64_t> sizes_;
  int64_t allocated_ = 0, peak_ = 0;
};

}  // namespace lockstep::device
