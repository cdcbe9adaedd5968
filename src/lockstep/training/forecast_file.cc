#include "lockstep/training/forecast_file.h"

#include "lockstep/base/error.h"
#include "lockstep/base/threads.h"
#include "lockstep/run/folder/receipt.h"

namespace lockstep::training {

ForecastFile::ForecastFile(const run::Plan& plan, const std::string& folder) : folder_(folder) {
  const auto make = [&plan, folder] {
    try {
      const run::Here here = run::this_place(plan);
      run::write_forecast(folder, run::forecast_here(plan, here), here.machine.name, here.measured);
    } catch (const std::exception&) {  // a full disk, a catalogue that cannot be read
    }
  };
  std::vector<std::jthread> one;
  if (base::add_helper(one, make)) maker_ = std::move(one[0]);
}

std::string ForecastFile::receipt() {
  if (maker_.joinable()) maker_.join();
  try {
    return run::receipt_line(run::read_receipt(folder_));
  } catch (const base::Error&) {
    return "";
  }
}

}  // namespace lockstep::training
