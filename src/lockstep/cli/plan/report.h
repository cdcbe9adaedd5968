// A forecast for people and for scripts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/plan/catalogue/place.h"
#include "lockstep/run/session/forecast.h"

namespace lockstep::cli {

// What is asked of the price list.
struct Paying {
  plan::Tariff tariff = plan::Tariff::on_demand;
  std::string region;              // empty: the cheapest
  double preemptions_per_day = 1;  // of one spot machine
};

struct Planned {
  plan::Place place;
  Paying paying;
  run::Forecast forecast;
  run::Bottleneck bottleneck;
  std::optional<plan::Choice> layouts;  // the best first
};

std::optional<double> dollars(const Planned& planned);

nlohmann::ordered_json to_json(const Planned& planned);
void print_report(const Planned& planned, const recipe::Recipe& recipe);
// Why these numbers: rates, links, and where they are from.
void print_explanation(const Planned& planned);

std::string money(double usd);  // "$1,204", "$0.35"

}  // namespace lockstep::cli
