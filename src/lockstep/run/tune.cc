#include "lockstep/run/tune.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/run/session.h"

namespace lockstep::run {

namespace {

constexpr int64_t kWarmUp = 2;

double median_step_ms(Session& session, int64_t steps) {
  const base::Recipe& r = session.plan.recipe();
  const data::Batch batch = data::read_batch(*session.plan.dataset,
                                             {.seed = 1,
                                              .global = r.batch.global,
                                              .slices = r.batch.slices.value,
                                              .own_slices = {},
                                              .seq_len = r.data.seq_len},
                                             0);
  std::vector<double> times;
  for (int64_t step = 0; step < kWarmUp + steps; ++step) {
    const int64_t began = base::monotonic_ns();
    session.executor->step({.seed = 1,
                            .step = static_cast<uint64_t>(step),
                            .learning_rate = 0,
                            .valid_tokens = static_cast<double>(batch.valid_labels)},
                           {batch.inputs, batch.labels});
    session.executor->read_oldest();
    if (step >= kWarmUp) times.push_back(static_cast<double>(base::monotonic_ns() - began) / 1e6);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

Trial try_one(const base::Resolved& resolved, int64_t slices, const std::string& recompute, int64_t steps) {
  base::Resolved mine = resolved;
  mine.recipe.batch.slices = slices;
  mine.recipe.batch.strands = base::AutoInt();
  mine.recipe.memory.recompute = recompute;
  mine.recipe.parallel = base::Recipe().parallel;  // this process is one rank
  Plan plan = make_plan(std::move(mine), {}, {.must_fit = false});
  Trial trial{slices, plan.layout.slice.samples, recompute, plan.memory.peak_bytes() <= plan.available_bytes,
              plan.memory.peak_bytes()};
  if (!trial.fits) return trial;
  const double tokens = static_cast<double>(plan.units_per_step());
  Session session(std::move(plan));
  trial.step_ms = median_step_ms(session, steps);
  trial.tokens_per_s = tokens / (trial.step_ms / 1e3);
  return trial;
}

}  // namespace

std::vector<Trial> tune(const base::Resolved& resolved, const TuneOptions& options,
                        const std::function<void(const std::string&)>& say) {
  if (options.steps < 1) throw base::ConfigError(109, "--steps: at least 1 is expected");
  std::vector<Trial> trials;
  for (const char* recompute : {"none", "cheap", "full"}) {
    for (int64_t slices = 1; slices <= resolved.recipe.batch.global; ++slices) {
      if (resolved.recipe.batch.global % slices != 0) continue;
      say(fmt::format("trying batch.slices={} memory.recompute={}", slices, recompute));
      trials.push_back(try_one(resolved, slices, recompute, options.steps));
    }
  }
  std::stable_sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) {
    return a.fits != b.fits ? a.fits : a.tokens_per_s > b.tokens_per_s;
  });
  return trials;
}

}  // namespace lockstep::run
