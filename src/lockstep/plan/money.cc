#include "lockstep/plan/money.h"

#include <algorithm>
#include <cmath>

namespace lockstep::plan {

Spot expect_spot(const SpotQuestion& q) {
  constexpr double kSecondsOfDay = 86400, kSecondsOfHour = 3600;
  Spot spot;
  spot.on_demand_usd = (q.hours + q.save_hours) * q.on_demand_usd_per_hour;
  const double rate = q.preemptions_per_day * q.machines / kSecondsOfDay;
  // Where it is interrupted, it saves as often as loses least, and not as often as it would have.
  const double run = (rate > 0 ? q.hours : q.hours + q.save_hours) * kSecondsOfHour;
  if (rate > 0) spot.save_every_seconds = std::sqrt(2 * std::max(q.save_seconds, 0.1) / rate);
  const double saving = rate > 0 ? q.save_seconds / spot.save_every_seconds : 0;
  const double lost = spot.save_every_seconds / 2 + q.restart_seconds;  // each time
  // Time that is lost can be interrupted too: where it would all be lost, nothing is ever done.
  const double wasted = rate * lost;
  spot.ends = wasted < 1;
  if (!spot.ends) return spot;
  const double all = run * (1 + saving) / (1 - wasted);
  spot.preemptions = all * rate;
  spot.low = std::max(0.0, spot.preemptions - std::sqrt(spot.preemptions));
  spot.high = spot.preemptions + std::sqrt(spot.preemptions);
  spot.hours = all / kSecondsOfHour;
  const auto usd = [&](double times) {
    return (run * (1 + saving) + times * lost) / kSecondsOfHour * q.usd_per_hour;
  };
  spot.usd = usd(spot.preemptions), spot.low_usd = usd(spot.low), spot.high_usd = usd(spot.high);
  return spot;
}

double break_even_hours(double on_demand, double committed, double term_hours) {
  return on_demand > 0 ? committed * term_hours / on_demand : 0;
}

}  // namespace lockstep::plan
