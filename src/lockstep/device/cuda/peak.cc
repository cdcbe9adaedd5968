#include "lockstep/device/cuda/peak.h"

#include <cctype>

namespace lockstep::device {
namespace {

struct Sheet {
  const char* words;  // of the name that the driver gives, such as "NVIDIA A100-SXM4-80GB"
  double half, fp32;
};
// The first match counts, so longer ones come first.
constexpr Sheet kSheets[] = {
    {"B300", 2250e12, 75e12},     {"B200", 2250e12, 75e12},    {"GB200", 2250e12, 75e12},
    {"H100 PCIe", 756e12, 51e12}, {"H100 NVL", 835e12, 60e12}, {"H100", 989.4e12, 66.9e12},
    {"H200 NVL", 835e12, 60e12},  {"H200", 989.4e12, 66.9e12}, {"GH200", 989.4e12, 66.9e12},
    {"A100", 312e12, 19.5e12},    {"A800", 312e12, 19.5e12},   {"A30", 165e12, 10.3e12},
    {"A10G", 70e12, 31.5e12},     {"A10", 125e12, 31.2e12},    {"A40", 149.7e12, 37.4e12},
    {"L40S", 362e12, 91.6e12},    {"L40", 181e12, 90.5e12},    {"L4", 121e12, 30.3e12},
    {"T4", 65e12, 8.1e12},
};

// Operations of one SM in one clock.
struct PerSm {
  int at_least;  // compute capability
  double half, fp32;
};
constexpr PerSm kPerSm[] = {
    {120, 1024, 256}, {100, 8192, 256}, {90, 4096, 256}, {89, 1024, 256},
    {86, 1024, 256},  {80, 2048, 128},  {75, 1024, 128},
};

bool has_words(const std::string& name, const std::string& words) {
  const auto inside_word = [&](size_t at) {
    return at < name.size() && std::isalnum(static_cast<unsigned char>(name[at]));
  };
  for (size_t at = name.find(words); at != std::string::npos; at = name.find(words, at + 1)) {
    if (!(at > 0 && inside_word(at - 1)) && !inside_word(at + words.size())) return true;
  }
  return false;
}

}  // namespace

PeakFlops peak_flops(const std::string& name, int compute_capability, int sm_count, double clock_hz) {
  for (const Sheet& sheet : kSheets) {
    if (has_words(name, sheet.words)) return {sheet.half, sheet.fp32};
  }
  for (const PerSm& sm : kPerSm) {
    if (compute_capability >= sm.at_least)
      return {sm.half * sm_count * clock_hz, sm.fp32 * sm_count * clock_hz};
  }
  return {};
}

}  // namespace lockstep::device
