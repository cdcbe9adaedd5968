// What can be rented for a run: every machine of the catalogue, in growing numbers, with the time and the
// money that the run would take there, and whether memory, quota, date and purse allow it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/plan/catalogue/place.h"
#include "lockstep/plan/quota/quota.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::cli {

struct ShopOptions {
  std::optional<double> hours, usd;  // at most
  std::vector<plan::Tariff> tariffs = {plan::Tariff::on_demand, plan::Tariff::spot};
  double preemptions_per_day = 1;  // of one spot machine
  std::string only;                // machines whose name, cloud or device has it
  std::string region;              // empty: any
  std::optional<plan::Quota> quota;
  int most_machines = 8;
};

struct Offer {
  plan::Place place;
  plan::Tariff tariff = plan::Tariff::on_demand;
  std::string region, layout;
  double step_seconds = 0, hours = 0, usd = 0,
         usd_per_hour = 0;  // hours and dollars with expected preemptions
  double error = 0;         // of the forecast
  bool measured = false;
  std::optional<plan::QuotaVerdict> quota;  // of the region; nothing: no quota was given
  std::string against;                      // why it will not do; empty: it will
  bool will_do() const { return against.empty(); }
};

struct Offers {
  std::vector<Offer> list;                                   // those that will do first, the cheapest first
  std::vector<std::pair<std::string, std::string>> refused;  // machines on which it cannot run, and why
  int64_t steps = 0;
};

// `say` is told what is being looked at.
Offers find_offers(const recipe::Resolved& resolved, const ShopOptions& options,
                   const std::function<void(const std::string&)>& say);

}  // namespace lockstep::cli
