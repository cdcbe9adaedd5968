#include "lockstep/base/process_birth.h"

#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <charconv>
#include <system_error>

#include "lockstep/base/file.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::base {
namespace {

constexpr int kStartTime = 22;  // which field of /proc/PID/stat
constexpr int kState = 3;       // the first behind the name, which may contain anything

}  // namespace

std::string ProcessBirth::to_text() const {
  return ticks == 0 ? "" : fmt::format("{}:{}", hex64(boot), ticks);
}

ProcessBirth ProcessBirth::from_text(const std::string& text) {
  ProcessBirth birth;
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return {};
  const char* const last = text.data() + colon;
  const auto [end, error] = std::from_chars(text.data(), last, birth.boot, 16);
  const auto ticks = parse_number<uint64_t>(text.substr(colon + 1));
  if (error != std::errc{} || end != last || !ticks) return {};
  birth.ticks = *ticks;
  return birth;
}

ProcessBirth birth_of(int64_t pid) {
  const std::string stat = try_read_file(fmt::format("/proc/{}/stat", pid), 4096).text;
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return {};
  size_t at = name_end + 2;
  for (int field = kState; field < kStartTime; ++field) {
    at = stat.find(' ', at);
    if (at == std::string::npos) return {};
    ++at;
  }
  const auto ticks = parse_number<uint64_t>(stat.substr(at, stat.find(' ', at) - at));
  if (!ticks) return {};
  const std::string boot = try_read_file("/proc/sys/kernel/random/boot_id", 256).text;
  return {hash_text(trimmed(boot)), *ticks};
}

bool still_lives(int64_t pid, const ProcessBirth& birth) {
  if (pid <= 0 || (::kill(static_cast<pid_t>(pid), 0) != 0 && errno != EPERM)) return false;
  const ProcessBirth now = birth_of(pid);
  return birth.ticks == 0 || now.ticks == 0 || now == birth;
}

}  // namespace lockstep::base
