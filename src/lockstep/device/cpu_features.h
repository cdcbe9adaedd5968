// What this processor is and can do, as far as the kernels and the numerics record care.
//
// CPU kernels are compiled once for each level; cpu_level() says which of them may run here. Reading
// /proc is kept apart from understanding it, so that the latter is tested on recorded text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::device {

enum class CpuLevel : uint8_t { generic, v2, v3, v4 };  // of x86-64; generic is any other processor

CpuLevel cpu_level();                 // from cpuid: what processor and operating system support
const char* name_of(CpuLevel level);  // "x86-64-v4"; for generic the architecture: "aarch64"

// The processor's name out of /proc/cpuinfo, or `fallback` where there is none (many ARM kernels).
std::string parse_cpu_name(std::string_view cpuinfo, const std::string& fallback);

struct HostMemory {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;
  bool operator==(const HostMemory&) const = default;
};

// Out of /proc/meminfo and the control group's memory.max and memory.current (empty where there is
// none): the smaller of machine and group counts. Text that does not parse counts as absent.
HostMemory parse_host_memory(std::string_view meminfo, std::string_view group_limit,
                             std::string_view group_used);

std::string cpu_name();
HostMemory host_memory();

}  // namespace lockstep::device
