#include "lockstep/run/loop/remarks.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>

#include "lockstep/base/text.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/optim/schedule.h"

namespace lockstep::run {
namespace {

using recipe::Recipe;

// Whoever started this rank has given it processors of its own (--numa-binding, srun): fewer than it has
// itself.
bool has_own_processors() {
  cpu_set_t mine, parents;
  return ::sched_getaffinity(0, sizeof mine, &mine) == 0 &&
         ::sched_getaffinity(::getppid(), sizeof parents, &parents) == 0 &&
         CPU_COUNT(&mine) < CPU_COUNT(&parents);
}

bool falls(const Recipe& recipe) { return optim::find_schedule(recipe.optim.schedule).falls; }

std::string warmup_remark(const Recipe& recipe) {
  const int64_t warmup = recipe.optim.warmup, steps = recipe.run.steps;
  if (warmup > steps) {
    return fmt::format(
        "optim.warmup = {} is longer than the run of run.steps = {}: the learning rate only rises, to {:.0f} "
        "% of optim.lr",
        warmup, steps, 100.0 * static_cast<double>(steps) / static_cast<double>(warmup));
  }
  if (falls(recipe) && warmup >= optim::schedule_steps(recipe) && steps > warmup) {
    return fmt::format(
        "optim.decay_steps = {} ends before the warm-up of {} steps: after it the learning rate drops to {} "
        "immediately",
        optim::schedule_steps(recipe), warmup, optim::learning_rate(recipe, warmup));
  }
  return "";
}

// Other trainers have an absolute rate under this name.
std::string min_lr_remark(const recipe::Resolved& resolved) {
  constexpr double kUsualFraction = 1e-3;
  const auto& o = resolved.recipe.optim;
  const bool absolute = o.min_lr > 0 && (o.min_lr < kUsualFraction || o.min_lr >= o.lr);
  if (!absolute || !falls(resolved.recipe) || !recipe::is_chosen(resolved, *recipe::find_key("optim.min_lr")))
    return "";
  const double end = o.lr * optim::batch_scale(resolved.recipe) * o.min_lr;
  return fmt::format("optim.min_lr = {} is a fraction of optim.lr = {}: the final learning rate is {:.4g}",
                     o.min_lr, o.lr, end);
}

void add(std::vector<std::string>& lines, std::string line) {
  if (!line.empty()) lines.push_back(std::move(line));
}

}  // namespace

std::vector<std::string> schedule_remarks(const recipe::Resolved& resolved) {
  std::vector<std::string> lines;
  add(lines, warmup_remark(resolved.recipe));
  add(lines, min_lr_remark(resolved));
  return lines;
}

std::vector<std::string> thread_remarks(const ThreadFacts& facts) {
  std::vector<std::string> lines;
  const char* const variable = facts.variable;
  const bool readable = variable != nullptr && device::parse_threads(variable).has_value();
  if (variable != nullptr && *variable != '\0' && !readable) {
    add(lines, fmt::format("OMP_NUM_THREADS={} is not a number of threads from 1 to {} and is ignored; "
                           "correct it, or unset it",
                           base::quoted(variable, 40), device::kMostThreads));
  }
  if (facts.threads * facts.local_ranks <= facts.processors) return lines;
  if (!facts.from_recipe && (!readable || facts.threads == 1))
    return lines;  // more ranks than processors: the user's own number
  add(lines, fmt::format("{} = {}{} exceeds the {} processor{} available to this process: threads compete "
                         "and steps take longer; leave it unset",
                         facts.from_recipe ? "run.threads" : "OMP_NUM_THREADS", facts.threads,
                         facts.local_ranks > 1 ? fmt::format(" on each of {} ranks", facts.local_ranks) : "",
                         facts.processors, facts.processors == 1 ? "" : "s"));
  return lines;
}

std::vector<std::string> remarks_on(const Plan& plan, const recipe::Circumstances& run) {
  std::vector<std::string> lines = recipe::keys_without_effect(plan.resolved, run);
  const std::vector<std::string> schedule = schedule_remarks(plan.resolved);
  lines.insert(lines.end(), schedule.begin(), schedule.end());
  if (plan.device->id().kind != device::Kind::cpu) return lines;
  const std::vector<std::string> threads =
      thread_remarks({.threads = device::thread_count(),
                      .local_ranks = has_own_processors() ? 1 : plan.seat.local_world,
                      .processors = device::usable_processors(),
                      .variable = std::getenv("OMP_NUM_THREADS"),
                      .from_recipe = !plan.recipe().run.threads.is_auto});
  lines.insert(lines.end(), threads.begin(), threads.end());
  return lines;
}

std::string unused_gpu(const Plan& plan) {
  if (plan.recipe().run.device != "auto" || plan.device->id().kind != device::Kind::cpu) return "";
  const device::CudaAvailability cuda = device::cuda_availability();
  if (!cuda.is_there || cuda.devices > 0) return "";
  return fmt::format("the GPU is not used: {}; {}", cuda.why_not, cuda.remedy);
}

std::string schedule_change(const Recipe& before, const Recipe& now, int64_t step) {
  const int64_t was = optim::schedule_steps(before), is = optim::schedule_steps(now);
  const double old_rate = optim::learning_rate(before, step), new_rate = optim::learning_rate(now, step);
  const bool longer = before.run.steps != now.run.steps;
  if (!longer && was == is) return "";
  const std::string change = longer
                                 ? fmt::format("run.steps was {}, is now {}", before.run.steps, now.run.steps)
                                 : fmt::format("the schedule had {} steps, now has {}", was, is);
  if (was == is || !falls(now)) return change + ": the learning rate is unaffected";
  const std::string keep = fmt::format("; to keep the old schedule, add optim.decay_steps={}", was);
  if (old_rate == new_rate) {
    return fmt::format("{}: the {} schedule ends at step {} instead of {}{}", change, now.optim.schedule, is,
                       was, keep);
  }
  return fmt::format(
      "{}: the {} schedule now ends at step {}, so the learning rate at step {} is {:.4g} instead of "
      "{:.4g}{}",
      change, now.optim.schedule, is, step + 1, new_rate, old_rate, keep);
}

}  // namespace lockstep::run
