#include "lockstep/run/bench_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/run/session.h"

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

// Times `call` on a stream of its own: the best of a few, in milliseconds.
template <class Call>
double best_ms(device::Device& device, device::Stream stream, Call call) {
  constexpr int kTimes = 8;
  const device::Event begin = device.create_event(), end = device.create_event();
  double best = 1e30;
  for (int i = 0; i < kTimes; ++i) {
    const int64_t began = base::monotonic_ns();
    device.record(begin, stream);
    call();
    device.record(end, stream);
    device.synchronize(stream);
    const bool cpu = device.id().kind == device::Kind::cpu;
    best = std::min(best, cpu ? static_cast<double>(base::monotonic_ns() - began) / 1e6
                              : device.milliseconds_between(begin, end));
  }
  device.destroy_event(begin);
  device.destroy_event(end);
  return best;
}

class Scratch {
 public:
  Scratch(device::Device& device, int64_t bytes) : device_(device), data_(device.allocate(bytes)) {}
  ~Scratch() { device_.free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* get() const { return data_; }

 private:
  device::Device& device_;
  void* data_;
};

void measure_ceilings(Plan& plan, BenchStep& result) {
  device::Device& device = *plan.device;
  const bool cpu = device.id().kind == device::Kind::cpu;
  const int64_t side = cpu ? 1024 : 8192, copied = int64_t{1} << (cpu ? 26 : 30);
  const device::Stream stream = device.create_stream();
  {
    const Scratch from(device, copied), to(device, copied);
    device.fill_zero(from.get(), copied, stream);
    const double ms = best_ms(device, stream, [&] {
      device.copy(to.get(), from.get(), copied, device::CopyKind::device_to_device, stream);
    });
    result.copy_gb_s = 2.0 * static_cast<double>(copied) / (ms * 1e6);
  }
  {
    const DType type = plan.model->compute;
    const kernels::Kernels& kernels = kernels::kernels_for(device.id().kind);
    kernels::Gemm gemm{.m = side, .n = side, .k = side, .in_type = type, .out_type = type, .trans_b = true};
    const int64_t count = side * side, bytes = count * device::size_of(type);
    const int64_t workspace_bytes = kernels.gemm_workspace(gemm);
    const Scratch values(device, count * 4), a(device, bytes), c(device, bytes),
        workspace(device, workspace_bytes);
    kernels::Launch launch{stream, workspace.get(), workspace_bytes, plan.recipe().precision.tf32};
    kernels.fill_normal({.count = count, .values = static_cast<float*>(values.get())}, launch);
    kernels.cast({DType::f32, type, count, values.get(), a.get()}, launch);
    gemm.a = gemm.b = a.get();
    gemm.c = c.get();
    const double ms = best_ms(device, stream, [&] { kernels.gemm(gemm, launch); });
    result.product_tflops = 2.0 * static_cast<double>(side) * static_cast<double>(count) / (ms * 1e9);
  }
  device.destroy_stream(stream);
}

double limit_ms(const program::Program& program, const BenchStep& ceilings) {
  double ms = 0;
  for (const program::Instruction& i : program.instructions) {
    ms += i.flops / (ceilings.product_tflops * 1e9) +
          static_cast<double>(i.moved_bytes) / (ceilings.copy_gb_s * 1e6);
  }
  return ms;
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
  std::vector<double> times;
  int64_t last = base::monotonic_ns();
  const auto read = [&](int64_t step) {
    static_cast<void>(session.executor->read_oldest());
    const int64_t now = base::monotonic_ns();
    if (step == 0) result.first_step_s = base::seconds_since_process_start();
    if (step >= options.warm_up) times.push_back(static_cast<double>(now - last) / 1e6);
    last = now;
  };
  const int64_t steps = options.warm_up + options.steps;
  for (int64_t step = 0; step < steps; ++step) {
    session.executor->step({.seed = 1,
                            .step = static_cast<uint64_t>(step),
                            .valid_tokens = static_cast<double>(labels.size()),
                            .learning_rate = 0},
                           {inputs, labels});
    // The first is timed, timing begins at the end of a step, and on the CPU a step is over when it returns.
    const bool alone =
        step == 0 || step + 1 == options.warm_up || plan.device->id().kind == device::Kind::cpu;
    if (session.executor->unread() > 1) read(step - 1);
    if (alone && session.executor->unread() > 0) read(step);
  }
  while (session.executor->unread() > 0) read(steps - 1);
  return times;
}

}  // namespace

BenchStep bench_step(const base::Resolved& resolved, const BenchStepOptions& options) {
  if (options.steps < 3 || options.warm_up < 1)
    throw base::ConfigError(109, "--steps: at least 3 are expected");
  Plan made = make_plan(resolved, {});
  if (!made.model->predicts_tokens) throw base::ConfigError(109, "bench step measures language models");
  Session session(std::move(made));
  Plan& plan = session.plan;
  BenchStep result{.device = plan.device->properties().name,
                   .model = plan.recipe().model.family,
                   .compute = device::name_of(plan.model->compute),
                   .parameters = plan.model->param_count(),
                   .samples = plan.recipe().batch.global,
                   .seq_len = plan.recipe().data.seq_len,
                   .slices = plan.recipe().batch.slices.value};
  std::vector<double> times = time_steps(session, options, result);
  result.memory_gib = static_cast<double>(plan.device->peak_allocated_bytes()) / (1 << 30);
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
  };
  result.median_ms = at(0.5);
  result.low_ms = at(0.1);
  result.high_ms = at(0.9);
  result.tokens_per_s = static_cast<double>(plan.units_per_step()) / (result.median_ms / 1e3);
  const device::Properties device = plan.device->properties();
  const double peak = plan.model->compute == DType::f32 ? device.peak_flops_fp32 : device.peak_flops_bf16;
  if (peak > 0) result.mfu = plan.model->flops_per_token(result.seq_len) * result.tokens_per_s / peak;
  try {
    measure_ceilings(plan, result);
    result.limit_ms = limit_ms(plan.program, result);
  } catch (const device::OutOfMemory&) {  // no room beside the model: the limit stays unknown
  }
  return result;
}

}  // namespace lockstep::run
