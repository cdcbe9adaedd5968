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
  bool measured = false;
  try {
    const run::Here here = run::this_place(plan);
    measured = here.measured;
    run::write_forecast(folder, run::forecast_here(plan, here),
                        {here.machine.name, measured, known_price_here(plan.recipe(), plan.seat.nodes)});
  } catch (const std::exception& error) {  // a full disk, a catalogue or a profile that cannot be read
    return std::string("no forecast was kept: ") + error.what();
  }
  try {
    return measured ? run::receipt_line(run::read_receipt(folder)) : "";
  } catch (const std::exception&) {  // without a timed step there is nothing to compare
    return "";
  }
}

}  // namespace lockstep::training
