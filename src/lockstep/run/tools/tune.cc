#include "lockstep/run/tools/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/run/session/batch_error.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

namespace {

constexpr int64_t kWarmUp = 2;

double median_step_ms(Session& session, int64_t steps) {
  const recipe::Recipe& r = session.plan.recipe();
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
                           {batch.inputs, batch.labels, batch.documents, batch.references});
    session.executor->read_oldest();
    if (step >= kWarmUp) times.push_back(static_cast<double>(base::monotonic_ns() - began) / 1e6);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// One process is one rank: how ranks share the work plays no part.
recipe::Resolved on_one_rank(recipe::Resolved resolved) {
  resolved.recipe.parallel = recipe::Recipe().parallel;
  return resolved;
}

// What the recipe means where nothing is changed; nothing where its batch contradicts itself, which is no
// reason not to find one that does not.
std::optional<Variant> own_variant(const recipe::Resolved& resolved) {
  try {
    return variant_of(make_plan(on_one_rank(resolved), {}, {.must_fit = false}));
  } catch (const BatchContradictionError&) {
    return std::nullopt;
  }
}

Trial try_one(const recipe::Resolved& resolved, const std::optional<Variant>& own, const Trial& wanted,
              int64_t steps) {
  recipe::Resolved mine = on_one_rank(resolved);
  mine.recipe.batch.slices = wanted.slices;
  // Strands stay where they can: they say how many ranks may share the batch.
  mine.recipe.batch.strands =
      own && wanted.slices % own->strands == 0 ? recipe::AutoInt(own->strands) : recipe::AutoInt();
  mine.recipe.memory.recompute = wanted.recompute;
  Plan plan = make_plan(std::move(mine), {}, {.must_fit = false});
  Trial trial = wanted;
  trial.strands = plan.layout.strands, trial.samples = plan.layout.slice.samples;
  trial.peak_bytes = plan.memory.peak_bytes();
  trial.fits = trial.peak_bytes <= plan.available_bytes;
  trial.same_bits = own && trial.slices == own->slices && trial.strands == own->strands;
  trial.own = trial.same_bits && trial.recompute == own->recompute;
  if (!trial.fits) return trial;
  const double tokens = static_cast<double>(plan.units_per_step());
  Session session(std::move(plan));
  trial.step_ms = median_step_ms(session, steps);
  trial.tokens_per_s = tokens / (trial.step_ms / 1e3);
  return trial;
}

}  // namespace

std::vector<Trial> tune(const recipe::Resolved& resolved, const TuneOptions& options,
                        const std::function<void(const std::string&)>& say) {
  if (options.steps < 1) throw base::ConfigError(109, "--steps must be at least 1");
  const std::optional<Variant> own = own_variant(resolved);
  std::vector<Trial> trials;
  for (const char* recompute : {"none", "cheap", "full"}) {
    for (int64_t slices = 1; slices <= resolved.recipe.batch.global; ++slices) {
      if (resolved.recipe.batch.global % slices != 0) continue;
      say(fmt::format("trying batch.slices={} memory.recompute={}", slices, recompute));
      trials.push_back(try_one(resolved, own, {.slices = slices, .recompute = recompute}, options.steps));
    }
  }
  std::stable_sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) {
    return a.fits != b.fits ? a.fits : a.tokens_per_s > b.tokens_per_s;
  });
  return trials;
}

}  // namespace lockstep::run
