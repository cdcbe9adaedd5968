// Time in the three forms that are needed: stamps that never go back, time since the program was
// started, and the date for people and files.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::base {

int64_t monotonic_ns();  // the same clock in every process of a host; never goes back

// Counted from exec, so that it includes loading the libraries. Good to 10 ms (the kernel's tick).
// 0 where /proc does not say.
double seconds_since_process_start();

std::string utc_timestamp();                     // "2026-03-01T12:34:56.789Z"
std::string utc_timestamp(int64_t unix_millis);  // of that moment

}  // namespace lockstep::base
