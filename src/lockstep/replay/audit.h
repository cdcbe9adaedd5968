// Whether a run's log is what its training gave: its chain is whole (run/shared/chain.h), and steps picked at
// random give the same bits again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/replay/replayer.h"
#include "lockstep/run/shared/chain.h"

namespace lockstep::replay {

struct ChainCheck {
  int64_t links = 0, signatures = 0;  // that fit
  int64_t first_step = 0;             // steps done before the chain began
  int64_t last_step = 0;              // of the last link
  std::string last_link;              // whoever keeps it elsewhere can tell a chain that was made again
  std::string key;                    // "ed25519 1f2e...", which key was checked; empty: no signature was
  std::string remark;                 // what could not be checked
  std::string problem;                // the first thing that does not fit; empty: all does
};

// `key`: what the links must be signed with; none: the public key that the run itself names. ConfigError 338:
// the run has no chain.
ChainCheck check_chain(const std::string& run_folder, const std::optional<run::SigningKey>& key);

// So many of them, in rising order; all where there are no more. The same seed gives the same choice.
std::vector<int64_t> picked_steps(const std::vector<int64_t>& steps, int64_t count, uint64_t seed);

struct ReplayedStep {
  int64_t step = 0, from = 0;  // where the replay began
  Logged logged, replayed;
  bool same() const;  // in what was logged
};
ReplayedStep replay_and_compare(Replayer& replayer, int64_t step, const Logged& logged);

}  // namespace lockstep::replay
