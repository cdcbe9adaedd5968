// What the ranks of a run on this host are doing at this moment, from the marks that they leave in RUN/trace.
//
//     RanksNow ranks("runs/first");
//     for (const RankNow& rank : ranks.look()) ... rank.facts.last, rank.step_seconds, rank.waits ...
//
// Reading costs the run nothing. Marks of ranks on other hosts mean nothing here, though a shared disk may
// show them; of these, the launcher that leads tells what it hears once a second (watch/nodes.h), where it is
// asked: RanksNow ranks(folder, RanksNow::Reach::all_hosts).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
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
  bool elsewhere = false;       // on another host, and told
};

class RanksNow {
 public:
  enum class Reach : uint8_t { this_host, all_hosts };
  explicit RanksNow(std::string folder, Reach reach = Reach::this_host)
      : folder_(std::move(folder)), reach_(reach) {}
  std::vector<RankNow> look();  // by rank; empty: no rank has left a mark
  // Ranks that those of the last look work with, and of which nothing is known.
  std::vector<int> unseen() const;
  // Who holds up whom, where somebody does.
  static std::optional<watch::Verdict> verdict(const std::vector<RankNow>& ranks);

 private:
  void look_here(std::vector<RankNow>& ranks);
  void ask_elsewhere(std::vector<RankNow>& ranks);

  struct Seen {
    int pid = 0;
    double cpu_seconds = 0;
    int64_t at_ns = 0;
    watch::Names names;
  };
  std::string folder_;
  Reach reach_;
  std::map<int, Seen> seen_;
  std::set<int> known_, members_;  // ranks: of the last look, and of their groups
};

std::vector<int> ranks_with_marks(const std::string& folder);  // those that have a ring in it, sorted

// Whether some rank of the run is a living process of this host. Looks at a few ranks only.
bool lives_here(const std::string& folder);

void mark_stragglers(std::vector<RankNow>& ranks);

}  // namespace lockstep::see
