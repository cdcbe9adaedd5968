// A forecast for people and for scripts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/plan/catalogue/place.h"
#include "lockstep/plan/loss_law.h"
#include "lockstep/plan/quota/quota.h"
#include "lockstep/run/session/forecast.h"

namespace lockstep::cli {

// What is asked of the price list.
struct Paying {
  plan::Tariff tariff = plan::Tariff::on_demand;
  std::string region;              // empty: the cheapest
  double preemptions_per_day = 1;  // of one spot machine
};

// Of all files together; nothing where none is given. ConfigError 574.
std::optional<plan::Quota> read_quotas(const std::vector<std::string>& files);

// An estimate, and what it rests on.
struct ExpectedLoss {
  plan::LossEstimate estimate;
  std::string basis;  // a sentence
};
// `words`: a run folder, "chinchilla" or a law (plan/loss_law.h). ConfigError 109, 580.
ExpectedLoss loss_to_expect(const std::string& words, const run::Forecast& forecast);

struct Planned {
  plan::Place place;
  Paying paying;
  run::Forecast forecast;
  run::Bottleneck bottleneck;
  std::optional<plan::Choice> layouts;                        // the best first
  bool own_layout = false, nothing_fits = false;              // the recipe's; all were tried, and too large
  std::optional<std::vector<plan::QuotaVerdict>> quota = {};  // by region; nothing: none was given
  std::vector<run::MenuRow> menu = {};                        // where it does not fit: what would
  std::optional<ExpectedLoss> loss = {};                      // where it was asked
  bool in_quota() const;                                      // somewhere, or none was given
};

std::optional<double> dollars(const Planned& planned);

nlohmann::ordered_json to_json(const Planned& planned);
void print_report(const Planned& planned, const recipe::Recipe& recipe);
// Why these numbers: rates, links, and where they are from.
void print_explanation(const Planned& planned);

std::string money(double usd);  // "$1,204", "$0.35"
// Commas with blanks behind them, where a narrow terminal may break the line.
std::string breakable(const std::string& words);

}  // namespace lockstep::cli
