#include "lockstep/device/cpu_features.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "lockstep/base/number.h"
#include "lockstep/device/memory_group.h"

namespace lockstep::device {
namespace {

std::string read_text(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// The value of the first line `key : value`.
std::string_view find_field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && trim(line.substr(0, colon)) == key)
      return trim(line.substr(colon + 1));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

std::optional<int64_t> parse_count(std::string_view text) {
  const std::optional<int64_t> value = base::leading_number(trim(text));
  return value >= 0 ? value : std::nullopt;
}

int64_t kibibytes(std::string_view meminfo, std::string_view key) {
  constexpr int64_t kMost = INT64_MAX / 1024;
  return std::min(parse_count(find_field(meminfo, key)).value_or(0), kMost) * 1024;
}

}  // namespace

CpuLevel cpu_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return v4 ? CpuLevel::v4 : v3 ? CpuLevel::v3 : v2 ? CpuLevel::v2 : CpuLevel::generic;
#else
  return CpuLevel::generic;
#endif
}

const char* name_of(CpuLevel level) {
  switch (level) {
    case CpuLevel::v4:
      return "x86-64-v4";
    case CpuLevel::v3:
      return "x86-64-v3";
    case CpuLevel::v2:
      return "x86-64-v2";
    case CpuLevel::generic:
      break;
  }
#if defined(__x86_64__)
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "generic";
#endif
}

std::string parse_cpu_name(std::string_view cpuinfo, const std::string& fallback) {
  const std::string_view name = find_field(cpuinfo, "model name");
  return name.empty() ? fallback : std::string(name);
}

HostMemory parse_host_memory(std::string_view meminfo, std::string_view group_limit,
                             std::string_view group_used) {
  HostMemory memory{kibibytes(meminfo, "MemTotal"), kibibytes(meminfo, "MemAvailable")};
  if (const auto limit = parse_count(group_limit); limit && *limit < memory.total_bytes) {
    memory.total_bytes = *limit;
    const int64_t left = std::max<int64_t>(0, *limit - parse_count(group_used).value_or(0));
    memory.available_bytes = std::min(memory.available_bytes, left);
  }
  return memory;
}

std::string cpu_name() {
  utsname system{};
  uname(&system);
  return parse_cpu_name(read_text("/proc/cpuinfo"), system.machine);
}

HostMemory host_memory() {
  HostMemory memory = parse_host_memory(read_text("/proc/meminfo"), "", "");
  struct sysinfo kernel {};
  if (memory.total_bytes == 0 && ::sysinfo(&kernel) == 0) {  // no /proc here
    memory.total_bytes = static_cast<int64_t>(kernel.totalram) * kernel.mem_unit;
    memory.available_bytes = static_cast<int64_t>(kernel.freeram + kernel.bufferram) * kernel.mem_unit;
  }
  const MemoryGroup group = read_memory_group();
  if (group.limit_bytes) memory.total_bytes = std::min(memory.total_bytes, *group.limit_bytes);
  if (group.left_bytes) memory.available_bytes = std::min(memory.available_bytes, *group.left_bytes);
  return memory;
}

}  // namespace lockstep::device
