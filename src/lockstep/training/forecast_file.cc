#include "lockstep/training/forecast_file.h"

#include "lockstep/base/error.h"
#include "lockstep/run/folder/receipt.h"
#include "lockstep/training/spending.h"

namespace lockstep::training {
namespace {

constexpr int kMostRanks = 512;  // whose programs are compiled and walked in about a second

}  // namespace

std::string write_receipt(const run::Plan& plan, const std::string& folder) {
  if (plan.own_model || plan.seat.world > kMostRanks) return "";
  try {
    const run::Here here = run::this_place(plan);
    run::write_forecast(folder, run::forecast_here(plan, here),
                        {here.machine.name, here.measured, known_price_here(plan.recipe(), plan.seat.nodes)});
    return here.measured ? run::receipt_line(run::read_receipt(folder)) : "";
  } catch (
      const std::exception&) {  // a full disk, a catalogue that cannot be read, a run without a timed step
    return "";
  }
}

}  // namespace lockstep::training
