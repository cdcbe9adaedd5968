#include "lockstep/cli/jobs/place_forecast.h"

#include <fmt/format.h>

#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/estimate.h"
#include "lockstep/run/session/choose_layout.h"
#include "lockstep/run/session/forecast.h"

namespace lockstep::cli {
namespace {

// The tariff's price in the place's region, or anywhere; nothing is said where there is none.
void name_machine(jobs::Place& place, const plan::Place& there) {
  const plan::Tariff tariff = jobs::is_spot(place) ? plan::Tariff::spot : plan::Tariff::on_demand;
  const std::string region = jobs::region_of_place(place);
  if (there.price(tariff, region)) {
    jobs::name_machine(place, there.row->name, region);
  } else if (there.price(tariff, "")) {
    jobs::name_machine(place, there.row->name, "");
  }
}

// Nothing: the catalogue has no such machine, or ranks are not one per device.
std::optional<plan::Place> machines_of(const jobs::Place& place) {
  const plan::MachineRow* row = plan::catalogue().find_machine(jobs::catalogue_name(place));
  if (row == nullptr) return std::nullopt;
  return plan::parse_place(fmt::format("{} x {}", place.nodes, row->name));
}

// Ranks of a place that leaves the number of GPUs to the machine type are one per device, too.
bool one_rank_per_device(const jobs::Place& place, const plan::Place& there) {
  if (place.ranks > 0) return place.ranks == there.row->devices;
  return place.gpus == 0 || place.gpus == there.row->devices;
}

run::Forecast forecast_there(recipe::Resolved resolved, const plan::Place& there) {
  if (resolved.recipe.parallel.automatic) run::take_layout(resolved, run::simple_layout(resolved, there));
  return run::forecast(resolved, there);
}

// Those that are kept for good, the newest, and the one that is being written.
int64_t checkpoints_of(const recipe::Recipe& recipe) {
  const int64_t kept = recipe.checkpoint.keep_every > 0 ? recipe.run.steps / recipe.checkpoint.keep_every : 0;
  return kept + recipe.checkpoint.keep + 1;
}

}  // namespace

std::vector<std::string> fill_from_forecast(jobs::Place& place, const recipe::Resolved& resolved) {
  const std::optional<plan::Place> there = machines_of(place);
  if (!there) return {};
  name_machine(place, *there);
  if (!one_rank_per_device(place, *there)) return {};
  try {
    const run::Forecast forecast = forecast_there(resolved, *there);
    std::vector<std::string> remarks = jobs::fill_in(place, {.on = there->words,
                                                             .hours = forecast.hours,
                                                             .error = forecast.error,
                                                             .checkpoint_bytes = forecast.checkpoint_bytes,
                                                             .checkpoints = checkpoints_of(resolved.recipe)});
    if (!forecast.fits())
      remarks.push_back(fmt::format(
          "memory: by the forecast a rank needs {} of {}; `lockstep plan RECIPE --on \"{}\"` lists "
          "what would fit",
          base::human_bytes(static_cast<double>(forecast.peak_bytes)),
          base::human_bytes(static_cast<double>(forecast.available_bytes)), there->words));
    return remarks;
  } catch (const base::ConfigError& error) {  // files of the run may be there and not here
    return {fmt::format("time and disk are the place's own, since there is no forecast: {}", error.what())};
  }
}

}  // namespace lockstep::cli
