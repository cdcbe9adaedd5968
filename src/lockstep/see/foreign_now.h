// What the ranks of another program under `lockstep launch` are doing, as far as it shows from outside:
// processors, memory, state, and the last line that each has printed.
//
//     ForeignNow look;
//     for (const ForeignRankNow& rank : look.ranks(launch)) ...
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/watch/launch_status.h"

namespace lockstep::see {

struct ForeignRankNow {
  int rank = 0, pid = 0;
  bool alive = false;
  std::string doing;  // "computes", "waits in futex_wait_queue", "stopped", "ended: killed by SIGKILL (9)"
  std::optional<double> cpu;  // cores in use since the look before, by it and what it started
  int64_t memory = 0;         // resident bytes, likewise
  std::vector<int> family;    // its processes
  std::string last_line;
};

class ForeignNow {
 public:
  std::vector<ForeignRankNow> ranks(const watch::LaunchStatus& launch);

 private:
  struct Seen {
    double cpu_seconds = 0;
    int64_t at_ns = 0;
  };
  std::map<int, Seen> seen_;  // by process
};

}  // namespace lockstep::see
