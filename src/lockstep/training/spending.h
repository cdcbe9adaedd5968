// run.budget while a run trains: counts, tells, and says when to stop.
#pragma once

#include <memory>
#include <string>

#include "lockstep/run/session/session.h"
#include "lockstep/run/shared/budget.h"

namespace lockstep::training {

class SpendingWatch : public run::Observer {
 public:
  // `fresh`: the run starts over, and so does its bill. `goes_on`: its launcher has started these ranks
  // again, and the time since the last of them died was paid for too. ConfigError 577: no price is known;
  // 578: the budget is spent already.
  struct Begin {
    std::string folder;
    bool fresh = false, goes_on = false;
  };
  SpendingWatch(const run::Session& session, const Begin& begin, run::Observer& tell);

  void stepped(const run::StepReport& report) override;
  bool is_spent() const;         // asked at each step boundary
  std::string describe() const;  // for the end
  void keep() const;             // writes what was spent

 private:
  std::string folder_;
  run::Observer& tell_;
  run::Budget budget_;
  double step_seconds_ = 0;
  int64_t kept_ns_ = 0;
};

// ConfigError 577 before anything starts: there is a budget, and no price is known.
void check_price(const recipe::Recipe& recipe);

// Dollars an hour of all machines, by the same ways; 0: no price is known.
double known_price_here(const recipe::Recipe& recipe, int nodes);

// Null: the recipe has no budget.
std::unique_ptr<SpendingWatch> spending_watch(const run::Session& session, const SpendingWatch::Begin& begin,
                                              run::Observer& tell);

}  // namespace lockstep::training
