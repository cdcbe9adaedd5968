#include "lockstep/training/profile_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/file.h"

namespace lockstep::training {

namespace {

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

std::string keep_profile(const run::Session& session, const run::Profile& profile,
                         const std::string& folder) {
  const run::Plan& plan = session.plan;
  const run::Ranks& ranks = *session.ranks;
  const std::string joined = folder + "/trace/profile.json";
  const int64_t zero = common_zero(ranks, run::began_ns(profile));
  const std::string trace = run::trace_json(profile, plan.program, *plan.model, ranks.rank(), zero);
  base::make_folders(folder + "/trace");
  base::write_file_durable(ranks.alone() ? joined : trace_path(folder, ranks.rank()), trace);
  if (ranks.alone()) return joined;
  static_cast<void>(ranks.sum(std::vector<double>{0}));  // all have written theirs
  if (!ranks.first()) return joined;
  std::vector<std::string> traces;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    traces.push_back(base::try_read_file(trace_path(folder, rank)).text);
  }
  base::write_file_durable(joined, run::join_traces(traces));
  return joined;
}

}  // namespace lockstep::training
