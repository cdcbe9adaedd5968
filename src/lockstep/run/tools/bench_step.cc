#include "lockstep/run/tools/bench_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/run/executor/ceilings.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {
namespace {

using device::DType;

// Random tokens, the same every time: how fast a step is must not depend on the data's reader.
std::vector<int32_t> random_words(int64_t count, int64_t below, uint32_t seed) {
  std::mt19937 source(seed);
  std::uniform_int_distribution<int32_t> draw(0, static_cast<int32_t>(below - 1));
  std::vector<int32_t> words(static_cast<size_t>(count));
  for (int32_t& word : words) word = draw(source);
  return words;
}

// Milliseconds of the timed steps.
std::vector<double> time_steps(Session& session, const BenchStepOptions& options, BenchStep& result) {
  const Plan& plan = session.plan;
  const int64_t samples = plan.recipe().batch.global;
  const auto words = [&](int64_t of_model) {
    return samples * (of_model > 0 ? of_model : plan.recipe().data.seq_len);
  };
  const std::vector<int32_t> inputs = random_words(words(plan.model->input_words), plan.model->vocab, 1);
  const std::vector<int32_t> labels = random_words(words(plan.model->label_words), plan.model->vocab, 2);
  const std::vector<int32_t> documents(plan.model->documents ? inputs.size() : 0, 0);  // one to a sample
  const std::vector<double> references(plan.model->pairs ? static_cast<size_t>(samples) : 0, 0);
  base::end_lap(plan.laps, "wait for the first batch");
  std::vector<double> times;
  const auto read = [&](int64_t step) {
    static_cast<void>(session.executor->read_oldest());
    if (step == 0) {
      base::end_lap(plan.laps, "wait for its end");
      result.first_step_s = base::seconds_since_process_start();
    }
    if (step >= options.warm_up) times.push_back(session.executor->last_step_ms());
  };
  const int64_t steps = options.warm_up + options.steps;
  for (int64_t step = 0; step < steps; ++step) {
    session.executor->step({.seed = 1,
                            .step = static_cast<uint64_t>(step),
                            .learning_rate = 0,
                            .valid_tokens = static_cast<double>(labels.size())},
                           {inputs, labels, documents, references});
    if (step == 0) base::end_lap(plan.laps, "enqueue the first step");
    // When the first ends is told, and on the CPU a step is over when it returns.
    const bool alone = step == 0 || plan.device->id().kind == device::Kind::cpu;
    if (session.executor->unread() > 1) read(step - 1);
    if (alone && session.executor->unread() > 0) read(step);
  }
  while (session.executor->unread() > 0) read(steps - 1);
  result.graph = session.executor->runs_as_graph();
  return times;
}

}  // namespace

void check(const BenchStepOptions& options) {
  if (options.steps < 3 || options.warm_up < 1) throw base::ConfigError(109, "--steps must be at least 3");
}

BenchStep bench_step(const recipe::Resolved& resolved, const BenchStepOptions& options) {
  check(options);
  Plan made = make_plan(resolved, {}, {.reads_data = false, .laps = options.laps});
  if (!made.model->predicts_tokens) throw base::ConfigError(109, "bench step supports language models only");
  Session session(std::move(made));
  Plan& plan = session.plan;
  BenchStep result{.device = plan.device->properties().name,
                   .model = plan.recipe().model.family,
                   .compute = plan.recipe().precision.compute,
                   .parameters = plan.model->param_count(),
                   .samples = plan.recipe().batch.global,
                   .seq_len = plan.recipe().data.seq_len,
                   .slices = plan.recipe().batch.slices.value};
  std::vector<double> times = time_steps(session, options, result);
  result.memory_gib = static_cast<double>(plan.device->peak_allocated_bytes()) / (1 << 30);
  std::sort(times.begin(), times.end());
  const size_t tenth = times.size() / 10, half = times.size() / 2;  // as many are left out at either end
  result.median_ms = times.size() % 2 == 1 ? times[half] : (times[half - 1] + times[half]) / 2;
  result.low_ms = times[tenth];
  result.high_ms = times[times.size() - 1 - tenth];
  result.tokens_per_s = static_cast<double>(plan.units_per_step()) / (result.median_ms / 1e3);
  const device::Properties device = plan.device->properties();
  const double peak = plan.model->compute == DType::f32 ? device.peak_flops_fp32 : device.peak_flops_bf16;
  if (peak > 0) result.mfu = plan.model->flops_per_token(result.seq_len) * result.tokens_per_s / peak;
  try {
    const Ceilings ceilings =
        measure_ceilings(*plan.device, plan.model->compute, plan.recipe().precision.tf32,
                         plan.recipe().precision.compute == "fp8");
    result.product_tflops = ceilings.product_tflops;
    result.fp8_tflops = ceilings.fp8_tflops;
    result.copy_gb_s = ceilings.copy_gb_s;
    for (const program::Instruction& i : plan.program.instructions)
      result.limit_ms += ceilings.milliseconds(i);
  } catch (const device::OutOfMemory&) {  // no room beside the model: the limit stays unknown
  }
  return result;
}

}  // namespace lockstep::run
