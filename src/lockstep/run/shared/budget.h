// run.budget: what a run may cost, and the moment at which it must stop so that it does not cost more.
//
// Money is time at the machines' hourly price. What earlier processes of the same run took stands in the
// run folder (spending.json) and counts. Events tell of half and of nine tenths; the run ends, saved, while
// what is left still pays for stopping and saving.
//
//     Budget budget({.usd = 50, .usd_per_hour = 12.25, .stop_seconds = 3}, read_spending(folder));
//     if (budget.is_spent(seconds_of_this_process, step_seconds)) ...
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/run/shared/observer.h"

namespace lockstep::run {

// What processes of a run have taken so far.
struct Spending {
  double seconds = 0, usd = 0;
  int64_t processes = 0;
  int64_t updated_ms = 0;  // since 1970; 0: never
};
// Nothing where there is no file. IoError 818 where it cannot be read: money that was spent is not forgotten.
Spending read_spending(const std::string& folder);
void write_spending(const std::string& folder, const Spending& spending);

struct BudgetTerms {
  double usd = 0, usd_per_hour = 0;
  std::string price_from;     // "run.price", "p5.48xlarge, on demand in us-east-1"
  double stop_seconds = 2;    // from the last step to the end of the process: a save, and what is around it
  int64_t steps_to_stop = 1;  // that may still be taken after the word
};

class Budget {
 public:
  Budget(BudgetTerms terms, const Spending& earlier) : terms_(std::move(terms)), earlier_(earlier) {}

  // Of a process that has been alive for so long.
  Spending spending(double alive_seconds) const;
  // Whether to stop now: what stopping takes, and the steps until then, would not be paid for otherwise.
  bool is_spent(double alive_seconds, double step_seconds) const;
  // Tells of shares that were passed since the last call: events `budget`.
  void tell(double alive_seconds, int64_t step, Observer& everyone);

  const BudgetTerms& terms() const { return terms_; }
  std::string describe(double alive_seconds) const;  // "$25.10 of $50.00 spent in 2 h 03 m at $12.25/h (...)"

 private:
  BudgetTerms terms_;
  Spending earlier_;
  size_t told_ = 0;  // shares
};

}  // namespace lockstep::run
