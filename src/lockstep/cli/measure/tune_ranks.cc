#include "lockstep/cli/measure/tune_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/run/session/session_plan.h"
#include "lockstep/verify/child.h"

namespace lockstep::cli {

namespace {

constexpr int64_t kWarmUp = 3;
constexpr double kMostSeconds = 600;

run::Plan plan_on(recipe::Resolved resolved, int ranks) {
  run::PlanOptions options{.must_fit = false};
  options.seat.world = options.seat.local_world = ranks;
  return run::make_plan(std::move(resolved), {}, options);
}

std::optional<double> median_step_ms(const std::string& folder) {
  std::vector<double> times;
  for (const std::string& line : base::split_lines(base::try_read_file(folder + "/metrics.jsonl").text)) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (row.is_object() && row.contains("step_ms") && row.value("step", int64_t{0}) > kWarmUp)
      times.push_back(row["step_ms"].get<double>());
  }
  if (times.empty()) return std::nullopt;
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

class RankTuner {
 public:
  RankTuner(const recipe::Resolved& resolved, int ranks, int64_t steps)
      : resolved_(resolved),
        ranks_(ranks),
        steps_(steps),
        own_(run::variant_of(plan_on(resolved, ranks))),
        train_(verify::train_by({.program = std::filesystem::read_symlink("/proc/self/exe").string(),
                                 .most_seconds = kMostSeconds})) {}

  // Nothing: the ranks do not allow it.
  std::optional<run::Trial> try_one(int64_t slices, const std::string& recompute) {
    run::Trial trial{.slices = slices, .recompute = recompute};
    recipe::Resolved mine = resolved_;
    mine.recipe.batch.slices = slices;
    mine.recipe.batch.strands =
        slices % own_.strands == 0 ? recipe::AutoInt(own_.strands) : recipe::AutoInt();
    mine.recipe.memory.recompute = recompute;
    try {
      const run::Plan plan = plan_on(mine, ranks_);
      trial.strands = plan.layout.strands, trial.samples = plan.layout.slice.samples;
      trial.peak_bytes = plan.memory.peak_bytes();
      trial.fits = trial.peak_bytes <= plan.available_bytes;
      trial.same_bits = trial.slices == own_.slices && trial.strands == own_.strands;
      trial.own = trial.same_bits && trial.recompute == own_.recompute;
      if (trial.fits) time(trial, static_cast<double>(plan.units_per_step()));
    } catch (const base::ConfigError&) {
      return std::nullopt;
    }
    return trial;
  }

 private:
  void time(run::Trial& trial, double units) {
    const std::string folder = fmt::format("{}/{}", scratch_.path(), ++made_);
    const std::string file = folder + ".toml";
    base::write_file_durable(file, recipe::write_toml(resolved_.recipe));
    const verify::Ended ended = train_(
        {.recipe = file,
         .overrides = {fmt::format("batch.slices={}", trial.slices),
                       fmt::format("batch.strands={}", trial.strands), "memory.recompute=" + trial.recompute,
                       fmt::format("run.steps={}", kWarmUp + steps_), "run.budget=", "log.every=1",
                       "log.eval_every=0", "log.eval_batches=1", "checkpoint.to="},
         .ranks = ranks_,
         .folder = folder});
    const std::optional<double> ms = median_step_ms(folder);
    if (ended.how == verify::Ended::How::failed || !ms) {
      throw base::RunError(
          625, fmt::format("a trial of batch.slices={} memory.recompute={} on {} ranks failed: {}",
                           trial.slices, trial.recompute, ranks_, ended.why));
    }
    trial.step_ms = *ms;
    trial.tokens_per_s = units / (*ms / 1e3);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  const recipe::Resolved& resolved_;
  int ranks_;
  int64_t steps_;
  run::Variant own_;
  verify::Train train_;
  base::TemporaryFolder scratch_;
  int made_ = 0;
};

}  // namespace

std::vector<run::Trial> tune_on_ranks(const recipe::Resolved& resolved, int ranks, int64_t steps,
                                      const std::function<void(const std::string&)>& say) {
  if (steps < 1) throw base::ConfigError(109, "--steps must be at least 1");
  RankTuner tuner(resolved, ranks, steps);
  std::vector<run::Trial> trials;
  for (const char* recompute : {"none", "cheap", "full"}) {
    for (int64_t slices = 1; slices <= resolved.recipe.batch.global; ++slices) {
      if (resolved.recipe.batch.global % slices != 0) continue;
      say(fmt::format("trying batch.slices={} memory.recompute={} on {} ranks", slices, recompute, ranks));
      if (const auto trial = tuner.try_one(slices, recompute)) trials.push_back(*trial);
    }
  }
  std::stable_sort(trials.begin(), trials.end(), [](const run::Trial& a, const run::Trial& b) {
    return a.fits != b.fits ? a.fits : a.tokens_per_s > b.tokens_per_s;
  });
  return trials;
}

}  // namespace lockstep::cli
