// What the launcher and its guard say to each other, as records on a SOCK_SEQPACKET pair. Both are the same
// program.
#pragma once

#include <cstdint>

namespace lockstep::launch {

enum class Ask : int32_t { start, signal, end_all, remove_at_end };
struct Request {
  Ask kind = Ask::start;
  int32_t pid = 0, signal = 0;
  uint32_t descriptors = 0;  // start: bits of in, out, err, keep, memory; the packed process comes first.
                             // remove_at_end: none; a file with the folder's name
  int64_t grace_ms = 0;
};

enum class Tell : int32_t { here, started, ended, all_gone };  // here: the guard's own number, first of all
struct Report {
  Tell kind = Tell::started;
  int32_t pid = 0, status = 0, error = 0;
  int64_t unix_micros = 0;
};

// In the guard's process: serves the launcher at the other end of the socket until it is gone, then ends all
// descendants.
[[noreturn]] void run_guard(int socket, int64_t grace_ms);

}  // namespace lockstep::launch
