#include "lockstep/cli/train/train_profile.h"

#include <fmt/format.h>
#include <unistd.h>


#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/run/executor/ceilings.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

TrainOptions::Steps read_profile(const std::string& text) {
  if (text.empty()) return {};
  const size_t colon = text.find(':');
  const std::optional<int64_t> first = base::parse_number(std::string_view(text).substr(0, colon));
  const std::optional<int64_t> last =
      colon == std::string::npos ? first : base::parse_number(std::string_view(text).substr(colon + 1));
  if (!first || !last || *first < 1 || *last < *first) {
    throw base::ConfigError(
        109, fmt::format("--profile {}: expected FIRST:LAST steps, counted from 1, such as 10:12", text));
  }
  return {.first = *first, .last = *last};
}

std::string profile_lines(const run::Session& session, const run::Profile& profile,
                          const std::string& trace) {
  const run::Plan& plan = session.plan;
  const terminal::Terminal terminal = terminal::terminal_of(STDERR_FILENO);
  run::Ceilings ceilings;
  try {
    ceilings = run::measure_ceilings(*plan.device, plan.model->compute, plan.recipe().precision.tf32,
                                     plan.recipe().precision.compute == "fp8");
  } catch (const device::OutOfMemory&) {  // no room beside the model: the table goes without
  }
  return run::profile_table(profile, plan.program, *plan.model, ceilings,
                            terminal.is_tty ? terminal.width - 1 : 100) +
         "trace written to " + trace + ": open it at ui.perfetto.dev";
}

}  // namespace lockstep::cli
