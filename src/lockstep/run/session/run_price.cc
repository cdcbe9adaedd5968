#include "lockstep/run/session/run_price.h"

#include <fmt/format.h>

#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/money.h"
#include "lockstep/base/text.h"
#include "lockstep/plan/catalogue/place.h"

namespace lockstep::run {

namespace {

using base::ConfigError;

constexpr const char* kRemedy =
    "set run.price to the dollars an hour of all its machines (run.price=12.5), or to a machine of `lockstep "
    "prices` (run.price=\"a3-highgpu-8g spot us-central1\")";

// "a3-highgpu-8g spot us-central1": the tariff and the region may be missing.
HourlyPrice price_of_words(const std::string& said, const std::string& words, int nodes) {
  std::istringstream in(words);
  std::string name, region;
  in >> name;
  plan::Tariff tariff = plan::Tariff::on_demand;
  for (std::string word; in >> word;) {
    if (const auto found = plan::parse_tariff(word)) {
      tariff = *found;
    } else {
      region = word;
    }
  }
  const plan::MachineRow* row = plan::catalogue().find_machine(name);
  if (row == nullptr)
    throw ConfigError(577, fmt::format("{} {}: {} is no machine of the catalogue; {}", said,
                                       base::quoted(words), base::quoted(name), kRemedy));
  const plan::RegionPrice* price = region.empty() ? row->cheapest(tariff) : row->price_in(region);
  if (price == nullptr || price->of(tariff) <= 0)
    throw ConfigError(577, fmt::format("{} {}: the catalogue has no {} price of {}{}; {}", said,
                                       base::quoted(words), name_of(tariff), row->name,
                                       region.empty() ? "" : " in " + base::quoted(region), kRemedy));
  return {price->of(tariff) * nodes,
          fmt::format("{}{}, {} in {}", nodes > 1 ? fmt::format("{} x ", nodes) : "", row->name,
                      name_of(tariff), price->region)};
}

}  // namespace

HourlyPrice hourly_price(const recipe::Recipe& recipe, const Whereabouts& here) {
  std::string said = recipe.run.price;
  if (said != "auto") {
    std::string_view number = base::trimmed(said);
    if (number.ends_with("/h")) number.remove_suffix(2);
    const auto usd = base::parse_dollars(number);
    if (usd && *usd <= 0) throw ConfigError(577, "run.price must be above 0 dollars an hour");
    return usd ? HourlyPrice{*usd, "run.price"} : price_of_words("run.price =", said, here.nodes);
  }
  if (here.machine) return price_of_words("LOCKSTEP_MACHINE =", *here.machine, here.nodes);
  if (plan::catalogue().find_machine(here.product) != nullptr)
    return price_of_words("this machine,", here.product, here.nodes);
  throw ConfigError(577, fmt::format("run.budget = {}: nobody has said what this machine costs; {}",
                                     base::quoted(recipe.run.budget), kRemedy));
}

double known_price(const recipe::Recipe& recipe, int nodes) {
  if (recipe.run.price == "auto") return 0;
  try {
    return hourly_price(recipe, {.nodes = nodes, .product = "", .machine = std::nullopt}).usd;
  } catch (const ConfigError&) {
    return 0;
  }
}

}  // namespace lockstep::run
