// Asks about layouts before anything runs: which one to take (parallel.auto), and whether all ranks fit
// together.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "lockstep/plan/choose.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

// How well the fullest rank's memory is known: that of each list's first rank; that and what larger shares
// add to it; or to the byte, from the programs of those that may be it.
enum class Sizes : uint8_t { first, estimated, exact };

// The programs of all ranks of a plan's layout, those with the same list once.
plan::Compiled compile_ranks(const Plan& plan, Sizes sizes);
plan::Compiled compile_ranks(const Plan& plan, const OtherStep& step, Sizes sizes);

// As one rank would hold the model and one sample, in no layout: what is counted of a model is counted there.
Plan whole_plan(recipe::Resolved resolved, const Own& own, PlanOptions options);

// What was compiled for one machine and serves others: devices of one kind have the same programs, and only
// their prices differ. `lockstep shop` asks about a hundred machines with a dozen different worlds.
class Known {
 public:
  // What decides about programs, beside the recipe: how many ranks in which nodes, and what their device can
  // do.
  static std::string key(const recipe::Resolved& resolved, const PlanOptions& options);

  template <class T>
  std::shared_ptr<const T> find(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(key);
    return found == kept_.end() ? nullptr : std::static_pointer_cast<const T>(found->second);
  }
  // `instructions`: how many there are in it. Of very many, later ones are not kept.
  void keep(const std::string& key, std::shared_ptr<const void> what, int64_t instructions);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const void>> kept_;
  int64_t instructions_ = 0;
};

// Every layout of the recipe's ranks, priced on a machine that need not be here.
struct Search {
  plan::Machine machine;
  int64_t available_bytes = 0;
  bool all = false;     // what the user has settled is up for choice too
  bool simple = false;  // as in plan::Question
  int64_t work = plan::Question().work;
  Known* known = nullptr;  // of the same recipe
};
plan::Choice search_layouts(const recipe::Resolved& resolved, const Search& search,
                            const PlanOptions& options, const Own& own = {});
// The recipe's layout becomes this one.
void take_layout(recipe::Resolved& resolved, const plan::Candidate& candidate);

// With parallel.auto, the recipe's layout becomes the fastest that fits, by plan::choose(); what the user set
// stays. `own`: as in make_plan(). Returns why, for people; empty without parallel.auto. ConfigError 183 when
// nothing fits.
std::string choose_layout(recipe::Resolved& resolved, const PlanOptions& options, const Own& own = {});

// What the fullest of all ranks needs; ranks may hold shards of different sizes.
int64_t fullest_rank_bytes(const Plan& plan);

// Walks the programs of all ranks, those with the same list once: sends meet receives, collectives come in
// one order, nothing waits for ever. Throws base::Bug with the first problem. Cheap: a fraction of a second
// at thousands of ranks. Returns how many different lists they have.
size_t check_ranks(const Plan& plan);

}  // namespace lockstep::run
