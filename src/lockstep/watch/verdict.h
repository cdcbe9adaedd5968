// The verdict: from what every rank was doing, who holds up whom, in one sentence.
//
//     "rank 3 (host b) never entered reduce b7, seq 812, group data; ranks 0 1 2 wait there since 31 s;
//      its last instruction: load s3"
//
// A pure function of facts. Who waits is inside a collective that others have not entered; a rank that is
// waited for and waits for others itself is no culprit. Nobody is judged before its budget of time is used
// up, and nobody at all while no one waits; but for a process that is stopped, which will not go on by
// itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/watch/facts.h"

namespace lockstep::watch {

// Seconds that others may wait.
struct Budgets {
  double hang = 0;  // while training; 0: the larger of 30 and ten times what the instruction usually takes
  // Of their own, because they may rightly be long; never shorter than `hang`. A process that is stopped has
  // none: it does not save or start.
  double start = 600, save = 1800, evaluate = 600;  // the last two: or ten times the usual, if that is more
  double stopped = 0;                               // for a process that is stopped; 0: as `hang`
};

struct Verdict {
  enum class Kind {
    dead,      // its process is gone
    frozen,    // does nothing, and others wait for it
    slow,      // others wait long, but it moves on: worth a word, no reason to end it
    stuck,     // everybody has come and nobody gets through: the network, or a device
    deadlock,  // they wait for each other in a circle
    mismatch,  // they met in different calls
  };
  Kind kind = Kind::frozen;
  std::vector<int> culprits;  // ranks; empty: nobody in particular
  std::string sentence;
  double waited = 0;                                 // seconds, the longest
  bool hangs() const { return kind != Kind::slow; }  // it will not end by itself
};
const char* name_of(Verdict::Kind kind);

// The longest that others may wait for this rank, as it is now.
double budget_of(const RankFacts& facts, const Budgets& budgets);

// Nothing while all is well. Facts of a rank may be missing: then nothing is known of it, and it may be
// starting.
std::optional<Verdict> judge(const std::vector<RankFacts>& facts, const Budgets& budgets);

}  // namespace lockstep::watch
