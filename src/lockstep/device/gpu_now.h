// How every GPU of this machine is doing at this moment: load, memory, power, clocks, heat, why it is held
// back, and errors. NVIDIA's by NVML, AMD's by the files of their driver (gpu_amd.h). Without a driver there
// are none.
//
//     GpuWatch watch;                       // opens libnvidia-ml.so.1, if there is one
//     for (const GpuNow& gpu : watch.look()) ... gpu.utilization, gpu.throttled ...
//     warnings_of(gpu)                      // what is outside the bands in which a trainer wants it
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::device {

struct GpuNow {
  int index = 0;
  std::string name;
  // What the driver does not tell is nothing.
  std::optional<double> utilization;  // part of the last second in which some kernel ran
  int64_t memory_used = 0, memory_total = 0;
  std::optional<double> watts, watts_limit;
  std::optional<int> clock_mhz, clock_max_mhz, celsius;
  std::vector<std::string> throttled;                  // "power cap", "heat"; empty: runs as fast as it may
  std::optional<int64_t> ecc_corrected, ecc_broken;    // since the driver was loaded
  std::vector<int64_t> xids;                           // errors since the watch began
  std::optional<double> nvlink_sent, nvlink_received;  // bytes per second since the look before
  struct Process {
    int pid = 0;
    int64_t memory = 0;
  };
  std::vector<Process> processes;  // those that compute, as far as the driver tells
  double memory_part() const;
};

class GpuWatch {
 public:
  explicit GpuWatch(std::string amd_root = "/sys/class");
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;
  std::vector<GpuNow> look();

 private:
  struct Library;
  std::unique_ptr<Library> library_;  // null: none
  const std::string amd_root_;
};

// One sentence each, with what to do. `trains`: a run uses it now, so that idleness is worth a word.
std::vector<std::string> warnings_of(const GpuNow& gpu, bool trains);

}  // namespace lockstep::device
