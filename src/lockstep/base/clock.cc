#include "lockstep/base/clock.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "lockstep/base/file.h"
#include "lockstep/base/number.h"

namespace lockstep::base {
namespace {

int64_t nanoseconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int64_t monotonic_ns() { return nanoseconds_of(CLOCK_MONOTONIC); }

double seconds_since_process_start() {
  const ReadResult stat = try_read_file("/proc/self/stat", 1 << 16);
  // The second field is the program's name in brackets and may hold anything: count from the last bracket.
  const size_t bracket = stat.text.rfind(')');
  if (bracket == std::string::npos) return 0;
  constexpr int kFieldsToStartTime = 20;  // start time is field 22, in ticks since boot
  const char* field = stat.text.c_str() + bracket + 1;
  for (int i = 1; i < kFieldsToStartTime && *field; ++i) {
    while (*field == ' ') ++field;
    while (*field && *field != ' ') ++field;
  }
  const double started = static_cast<double>(leading_number<uint64_t>(field + (*field == ' ')).value_or(0)) /
                         static_cast<double>(std::max(1L, ::sysconf(_SC_CLK_TCK)));
  const double now = static_cast<double>(nanoseconds_of(CLOCK_BOOTTIME)) * 1e-9;
  return started > 0 ? std::max(0.0, now - started) : 0;
}

std::string utc_timestamp() {
  using std::chrono::duration_cast, std::chrono::milliseconds, std::chrono::system_clock;
  return utc_timestamp(duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count());
}

std::string utc_timestamp(int64_t unix_millis) {
  const int64_t millis = ((unix_millis % 1000) + 1000) % 1000;
  const time_t seconds = static_cast<time_t>((unix_millis - millis) / 1000);
  tm date{};
  ::gmtime_r(&seconds, &date);
  return fmt::format("{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}.{:03d}Z", date.tm_year + 1900,
                     date.tm_mon + 1, date.tm_mday, date.tm_hour, date.tm_min, date.tm_sec, millis);
}

}  // namespace lockstep::base
