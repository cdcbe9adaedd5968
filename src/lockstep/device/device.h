// A device: where memory lives and work runs. One interface for the CPU and for the CUDA plugin.
//
// The program links no CUDA library. `open()` loads the plugin beside the program when a fitting
// driver is present, so a machine without one pays nothing. Work on a stream is asynchronous: what
// was handed to a call may be touched again only after synchronize() or an event says so. On the CPU
// every call has finished when it returns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::device {

enum class Kind : uint8_t { cpu, cuda };

struct Id {
  Kind kind = Kind::cpu;
  int index = 0;
  bool operator==(const Id&) const = default;
  std::string to_string() const;  // "cpu", "cuda:0"
};

struct Properties {
  std::string name;             // "NVIDIA H200", "AMD EPYC 9B14"
  std::string instruction_set;  // "x86-64-v4", "sm_90": part of the numerics record
  std::string address;          // on the bus: "0000:17:00.0"; empty for the CPU
  int64_t memory_bytes = 0;     // in all
  int64_t free_bytes = 0;       // now
  double peak_flops_bf16 = 0;   // dense matrix products; 0 when not known
  double peak_flops_fp32 = 0;
  bool fast_bf16 = false;  // bf16 matrix units: `precision.compute = auto` picks bf16
  bool fast_fp16 = false;
  bool fp8 = true;  // multiplies fp8: NVIDIA from compute capability 8.9; the CPU imitates it
};

// Where a device's memory may come from instead of the system: memory that other ranks can read.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual void* allocate(int64_t bytes) = 0;  // aligned to 256 bytes; device::OutOfMemory
  virtual void free(void* memory) = 0;
};

using Stream = void*;  // a cudaStream_t; null on the CPU
using Event = void*;
using Graph = void*;

enum class CopyKind : uint8_t { host_to_device, device_to_host, device_to_device };

// One kernel, copy or fill that ran on the device.
struct Traced {
  std::string name;
  int64_t begin_ns = 0, end_ns = 0;  // of a clock of the device's own
  int64_t tag = -1;                  // set when it was enqueued; -1: none
  bool in_graph = false;             // it ran as a part of a launched graph
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Id id() const = 0;
  virtual Properties properties() const = 0;

  // Device memory, aligned to 256 bytes. Throws OutOfMemory.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void free(void* memory) = 0;
  virtual int64_t allocated_bytes() const = 0;
  virtual int64_t peak_allocated_bytes() const = 0;
  virtual void forget_peak_above(int64_t bytes) = 0;  // but not what is allocated now
  // What is allocated from now on comes from there, until null is given. Only the CPU's memory can.
  virtual void allocate_from(MemorySource*) {}
  // Host memory that the device copies from without staging (pinned).
  virtual void* allocate_host(int64_t bytes) = 0;
  virtual void free_host(void* memory) = 0;

  virtual Stream create_stream() = 0;
  virtual void destroy_stream(Stream stream) = 0;
  virtual void copy(void* to, const void* from, int64_t bytes, CopyKind kind, Stream stream) = 0;
  // `rows` runs of `bytes`, that many bytes apart at either end. Memory of this device.
  virtual void copy_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t bytes,
                         int64_t rows, Stream stream) = 0;
  virtual void fill_zero(void* memory, int64_t bytes, Stream stream) = 0;
  virtual void synchronize(Stream stream) = 0;

  virtual Event create_event() = 0;
  virtual void destroy_event(Event event) = 0;
  virtual void record(Event event, Stream stream) = 0;
  virtual void wait(Stream stream, Event event) = 0;  // later work on `stream` waits for `event`
  virtual void wait_for(Event event) = 0;             // the host waits
  virtual bool done(Event event) = 0;                 // without waiting
  virtual double milliseconds_between(Event first, Event second) = 0;

  // Everything enqueued on `stream` between begin and end becomes one graph. Null where not supported.
  virtual bool can_capture() const = 0;
  virtual void begin_capture(Stream stream) = 0;
  virtual Graph end_capture(Stream stream) = 0;
  virtual void launch(Graph graph, Stream stream) = 0;
  virtual void destroy_graph(Graph graph) = 0;

  // Between the two, everything that runs on the device is noted, together with the tag that was set when it
  // was enqueued. Where the device cannot, begin_trace() says why, and there is nothing to end.
  virtual std::string begin_trace() { return "this device keeps no trace"; }
  virtual void tag(int64_t value) { (void)value; }
  virtual std::vector<Traced> end_trace() { return {}; }
};

// Raised by allocate(): asked for, free at that moment.
struct OutOfMemory {
  int64_t asked_bytes, free_bytes;
};

std::unique_ptr<Device> open(Id id);  // ConfigError (LS0401..) with the true reason when it cannot

// "auto", "cpu", "cuda", "cuda:1" to a device that exists here; `local_rank` picks among several GPUs.
Id resolve(const std::string& request, int local_rank = 0);

// How many usable NVIDIA GPUs there are, and if none, why not: "no NVIDIA driver", "driver 550 is
// older than 580", "Tesla V100 has compute capability 7.0, 7.5 is needed", "the CUDA plugin is not built".
struct CudaAvailability {
  int devices = 0;
  std::string why_not = {}, remedy = {};
  bool is_there = false;  // a GPU of NVIDIA's, usable or not
};
CudaAvailability cuda_availability();

// The plugin (liblockstep_cuda.so beside the library) once loaded; null before or without it.
void* cuda_plugin();

}  // namespace lockstep::device
