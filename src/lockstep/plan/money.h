// What interruptions and commitments do to a bill.
//
//     const plan::Spot spot = plan::expect_spot({.hours = 64, .machines = 1, .preemptions_per_day = 1, ...});
//     spot.save_every_seconds, spot.usd, spot.saving()
#pragma once

namespace lockstep::plan {

// A run of so many hours, had nothing interrupted it. One machine that goes stops all of them.
struct SpotQuestion {
  double hours = 0;       // of steps and evaluations
  double save_hours = 0;  // of the saves that it makes where nothing is known of interruptions
  int machines = 1;
  double preemptions_per_day = 1;                       // of one machine; the user's word, or a provider's
  double save_seconds = 1;                              // for so long a checkpoint holds the run up
  double restart_seconds = 300;                         // until a new machine takes the next step
  double usd_per_hour = 0, on_demand_usd_per_hour = 0;  // for all machines
};

struct Spot {
  bool ends = true;  // false: machines go faster than they come back, and all below is zero
  double preemptions = 0, low = 0, high = 0;  // expected; two of three runs lie between (Poisson's spread)
  double save_every_seconds = 0;              // what loses least: sqrt(2 x save x time between preemptions);
                                              // 0: nothing is ever lost
  double hours = 0;                           // with saves, lost steps and restarts
  double usd = 0, low_usd = 0, high_usd = 0, on_demand_usd = 0;
  double saving() const { return on_demand_usd - usd; }
};
Spot expect_spot(const SpotQuestion& question);

// Hours of use from which a commitment for a term costs less than paying by the hour.
double break_even_hours(double on_demand_usd_per_hour, double committed_usd_per_hour, double term_hours);
constexpr double kHoursOfYear = 8760;

}  // namespace lockstep::plan
