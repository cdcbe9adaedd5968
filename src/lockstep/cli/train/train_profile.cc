#include "lockstep/cli/train/train_profile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

std::string trace_path(const std::string& folder) { return folder + "/trace/profile.json"; }
std::string trace_path(const std::string& folder, int rank) {
  return fmt::format("{}/trace/profile.rank-{}.json", folder, rank);
}

// Where the common time begins. Ranks of one host read one clock; those of others began when the step's
// first collective let them, so each counts from its own beginning.
int64_t common_zero(const run::Ranks& ranks, int64_t began) {
  constexpr double kOneClock = 1e9;  // nanoseconds that ranks of one clock may be apart
  std::vector<double> all(static_cast<size_t>(ranks.size()));
  all[static_cast<size_t>(ranks.rank())] = static_cast<double>(began);
  all = ranks.sum(std::move(all));
  const auto [first, last] = std::minmax_element(all.begin(), all.end());
  return *last - *first < kOneClock ? static_cast<int64_t>(*first) : began;
}

}  // namespace

void read_profile(const std::string& text, run::TrainOptions& options) {
  if (text.empty()) return;
  int64_t first = 0, last = 0;
  const char* end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, first);
  last = first;
  if (error == std::errc() && at != end && *at == ':') {
    const auto second = std::from_chars(at + 1, end, last);
    at = second.ptr;
    error = second.ec;
  }
  if (error != std::errc() || at != end || first < 1 || last < first) {
    throw base::ConfigError(
        109,
        fmt::format("--profile {}: FIRST:LAST steps, counted from 1, such as 10:12, were expected", text));
  }
  options.profile.first = first;
  options.profile.last = last;
}

void check_profile(const run::TrainOptions& options, int64_t steps) {
  if (options.profile.first <= steps) return;
  throw base::ConfigError(109,
                          fmt::format("--profile {}:{} begins behind the run's last step, run.steps = {}",
                                      options.profile.first, options.profile.last, steps));
}

void keep_profile(const run::Session& session, const run::Profile& profile, const std::string& folder) {
  const run::Plan& plan = session.plan;
  const run::Ranks& ranks = *session.ranks;
  const int64_t zero = common_zero(ranks, run::began_ns(profile));
  const std::string trace = run::trace_json(profile, plan.program, *plan.model, ranks.rank(), zero);
  base::make_folders(folder + "/trace");
  base::write_file_durable(ranks.alone() ? trace_path(folder) : trace_path(folder, ranks.rank()), trace);
  if (ranks.alone()) return;
  (void)ranks.sum(std::vector<double>{0});  // all have written theirs
  if (!ranks.first()) return;
  std::vector<std::string> traces;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    traces.push_back(base::try_read_file(trace_path(folder, rank)).text);
  }
  base::write_file_durable(trace_path(folder), run::join_traces(traces));
}

std::string profile_lines(const run::Session& session, const run::Profile& profile,
                          const std::string& folder) {
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
         "the trace is in " + trace_path(folder) + ": open it at ui.perfetto.dev";
}

}  // namespace lockstep::cli
