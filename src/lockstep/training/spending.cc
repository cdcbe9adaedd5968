#include "lockstep/training/spending.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/money.h"
#include "lockstep/run/session/run_price.h"
#include "lockstep/run/shared/preemption.h"

namespace lockstep::training {

namespace {

constexpr int64_t kKeepNs = 5'000'000'000;
constexpr double kEndSeconds = 2;  // to close what is open and leave

int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

run::Spending earlier_of(const SpendingWatch::Begin& begin, double usd_per_hour) {
  if (begin.fresh) return {};
  run::Spending earlier = run::read_spending(begin.folder);
  if (!begin.goes_on || earlier.updated_ms == 0) return earlier;
  // Between the last word of the ranks before and the start of this process.
  const double gap =
      static_cast<double>(now_ms() - earlier.updated_ms) / 1e3 - base::seconds_since_process_start();
  earlier.seconds += std::max(0.0, gap);
  earlier.usd += std::max(0.0, gap) * usd_per_hour / 3600;
  return earlier;
}

run::HourlyPrice price_here(const recipe::Recipe& recipe, int nodes) {
  return run::hourly_price(recipe, {.nodes = nodes,
                                    .product = run::this_place().product,
                                    .machine = base::environment("LOCKSTEP_MACHINE")});
}

run::BudgetTerms terms_of(const run::Session& session, const std::string& folder) {
  const recipe::Recipe& recipe = session.plan.recipe();
  const run::HourlyPrice price = price_here(recipe, session.plan.seat.nodes);
  int64_t bytes = 0;
  for (const auto& [kind, count] : session.plan.memory.persistent_by_kind) bytes += count;
  return {.usd = base::parse_dollars(recipe.run.budget).value_or(0),
          .usd_per_hour = price.usd,
          .price_from = price.from,
          .stop_seconds = kEndSeconds + run::estimate_save(folder, bytes * session.ranks->size()),
          .steps_to_stop = session.ranks->alone() ? run::kStepsToStopAlone : run::kStepsToStop};
}

}  // namespace

double known_price_here(const recipe::Recipe& recipe, int nodes) {
  try {
    return price_here(recipe, nodes).usd;
  } catch (const base::ConfigError&) {
    return 0;
  }
}

SpendingWatch::SpendingWatch(const run::Session& session, const Begin& begin, run::Observer& tell)
    : folder_(begin.folder), tell_(tell), budget_([&] {
        const run::BudgetTerms terms = terms_of(session, begin.folder);
        return run::Budget(terms, earlier_of(begin, terms.usd_per_hour));
      }()) {
  if (!is_spent()) return;
  throw base::ConfigError(
      578, fmt::format("{}: nothing is left for another step; raise run.budget to continue", describe()));
}

void SpendingWatch::stepped(const run::StepReport& report) {
  step_seconds_ =
      std::max(report.step_ms / 1e3, 0.9 * step_seconds_);  // a slow one is remembered for a while
  budget_.tell(base::seconds_since_process_start(), report.step, tell_);
  if (base::monotonic_ns() - kept_ns_ < kKeepNs) return;
  kept_ns_ = base::monotonic_ns();
  keep();
}

bool SpendingWatch::is_spent() const {
  return budget_.is_spent(base::seconds_since_process_start(), step_seconds_);
}

std::string SpendingWatch::describe() const { return budget_.describe(base::seconds_since_process_start()); }

void SpendingWatch::keep() const {
  run::write_spending(folder_, budget_.spending(base::seconds_since_process_start()));
}

void check_price(const recipe::Recipe& recipe) {
  if (!recipe.run.budget.empty()) static_cast<void>(price_here(recipe, 1));
}

std::unique_ptr<SpendingWatch> spending_watch(const run::Session& session, const SpendingWatch::Begin& begin,
                                              run::Observer& tell) {
  if (session.plan.recipe().run.budget.empty()) return nullptr;
  return std::make_unique<SpendingWatch>(session, begin, tell);
}

}  // namespace lockstep::training
