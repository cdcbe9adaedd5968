// What the ranks of a run on this host are doing at this moment, from the marks that they leave in RUN/trace.
//
//     RanksNow ranks("runs/first");
//     for (const RankNow& rank : ranks.look()) ... rank.facts.last, rank.step_seconds, rank.waits ...
//
// Reading costs the run nothing. Ranks on other hosts leave their marks there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/watch/facts.h"
#include "lockstep/watch/verdict.h"

namespace lockstep::see {

struct RankNow {
  watch::RankFacts facts;
  bool alive = false;
  double step_seconds = 0;      // from step to step, lately; 0: not known
  std::optional<double> waits;  // of the time lately, the part inside collectives
  int64_t memory = 0;           // resident bytes of the process
  std::optional<double> cpu;    // cores in use since the look before
  bool straggler = false;       // the others wait for it: it waits much less than they do
};

class RanksNow {
 public:
  explicit RanksNow(std::string folder) : folder_(std::move(folder)) {}
  std::vector<RankNow> look();  // by rank; empty: no rank has left a mark
  // Who holds up whom, where somebody does.
  static std::optional<watch::Verdict> verdict(const std::vector<RankNow>& ranks);

 private:
  struct Seen {
    int pid = 0;
    double cpu_seconds = 0;
    int64_t at_ns = 0;
    watch::Names names;
  };
  std::string folder_;
  std::map<int, Seen> seen_;
};

std::vector<int> ranks_with_marks(const std::string& folder);  // those that have a ring in it, sorted

// Whether some rank of the run is a living process of this host. Looks at a few ranks only.
bool lives_here(const std::string& folder);

// The part of the time between the first and the last of these marks that was spent inside collectives.
std::optional<double> waiting_share(const std::vector<base::RingEntry>& marks);
void mark_stragglers(std::vector<RankNow>& ranks);

}  // namespace lockstep::see
