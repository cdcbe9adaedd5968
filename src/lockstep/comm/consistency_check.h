// The consistency check: every rank says who it is; the first that does not fit is named on all of them.
//
// Rank 0 asks everyone and gives one verdict, so a large world costs the store a few messages a rank.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/store/store.h"

namespace lockstep::comm {

using Facts = std::vector<std::pair<std::string, std::string>>;

struct ConsistencyCheck {
  int rank = 0, size = 1;
  int number = 0;  // of the check in this run
  Duration timeout{0};
  std::vector<int> names;  // by which ranks are called in sentences; empty: 0, 1, 2, ...
  std::function<void(const std::string&)> say = {};  // rank 0's: who is waited for, when it takes long
};

// ConfigError 523 (they differ), 528 (one number twice) or CommError 521 (not all came): the same sentence on
// every rank, with `what` before it.
void check_consistency(const ConsistencyCheck& call, const Facts& facts, Store& store,
                       const std::string& what = "");

// The same for the members of a group that is about to be made: they must agree on who they are.
struct GroupOptions;
void check_members(const GroupOptions& options, Store& store);

// "rank 2 has optim.lr = 0.1, rank 0 has 0.2"; empty when all agree. `all` is by rank, and so are `names`.
std::string first_difference(const std::vector<Facts>& all, const std::vector<int>& names);

// Facts as bytes and back; text that is not such bytes gives no facts.
std::string pack(const Facts& facts);
Facts unpack(const std::string& bytes);

}  // namespace lockstep::comm
