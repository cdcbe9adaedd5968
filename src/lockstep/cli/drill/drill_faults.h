// The faults that a drill tries: each a row of a table, with a function that disturbs a run and says what
// came of it.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "lockstep/cli/drill/drill_run.h"

namespace lockstep::cli {

// What a fault needs to know of the drill.
struct Drill {
  std::vector<std::string> words;  // recipe and keys
  std::string folder;              // for everything it writes
  std::string undisturbed;         // the run folder of as many steps without a fault
  int ranks = 4;
  int64_t steps = 0;
  int64_t checkpoint_bytes = 0;
  double patience = 120;  // seconds in which a run may show nothing new
  int64_t times = 1;      // how often the fault strikes in its run
  std::mt19937_64 random;
  int64_t pick(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  }
};

struct Struck {
  double noticed = 0;    // seconds from the fault until it was told
  double recovered = 0;  // until a step was done that had never been done before
  int64_t lost = 0;      // steps done again
};

struct DrillResult {
  std::vector<Struck> struck;
  std::string params_hash;
  std::string problem;  // empty: it came through
  std::string skipped;  // why it was not tried
};

struct Fault {
  const char* name;
  const char* what;
  std::vector<std::string> keys;  // that its run needs
  DrillResult (*run)(Drill& drill, const Fault& fault);
};
const std::vector<Fault>& drill_faults();

}  // namespace lockstep::cli
