#include "lockstep/run/session.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/model/family.h"
#include "lockstep/run/memory_report.h"
#include "lockstep/run/snapshot.h"
#include "lockstep/device/thread_pool.h"

namespace lockstep::run {

namespace {

using base::ConfigError;
using device::DType;

// What the device can do best, when the recipe leaves it open.
DType settle_precision(base::Resolved& resolved, const device::Properties& device) {
  std::string& wish = resolved.recipe.precision.compute;
  if (wish == "auto") {
    wish = device.fast_bf16 ? "bf16" : device.fast_fp16 ? "fp16" : "fp32";
    resolved.origin["precision.compute"] = "auto";
  }
  return wish == "bf16" ? DType::bf16 : wish == "fp16" ? DType::f16 : DType::f32;
}

void settle_logits_chunk(base::Resolved& resolved, DType compute, bool cuda) {
  base::AutoInt& chunk = resolved.recipe.memory.logits_chunk;
  if (!chunk.is_auto) return;
  const int64_t budget = cuda ? int64_t{1} << 30 : int64_t{64} << 20;
  const int64_t rows = budget / (resolved.recipe.model.vocab.value * device::size_of(compute));
  chunk = std::max<int64_t>(64, rows / 64 * 64);
  resolved.origin["memory.logits_chunk"] = "auto";
}

void check_batch(const base::Recipe& recipe) {
  const auto& b = recipe.batch;
  if (!recipe.parallel.data.is_auto && recipe.parallel.data.value != 1) {
    throw ConfigError(152, fmt::format("parallel.data = {0} needs {0} ranks, 1 started: leave it \"auto\"", recipe.parallel.data.value));
  }
  if (!b.slices.is_auto && b.global % b.slices.value != 0) {
    throw ConfigError(150, fmt::format("batch.slices = {} does not divide batch.global = {}; slices that do: {}",
                                       b.slices.value, b.global, base::divisors_near(b.global, b.slices.value)));
  }
  if (!b.strands.is_auto && !b.slices.is_auto && b.slices.value % b.strands.value != 0) {
    throw ConfigError(151, fmt::format("batch.strands = {} does not divide batch.slices = {}; strands that do: {}",
                                       b.strands.value, b.slices.value, base::divisors_near(b.slices.value, b.strands.value)));
  }
}

int64_t default_strands(int64_t slices) {
  int64_t strands = std::min<int64_t>(slices, 8);
  while (slices % strands != 0) --strands;
  return strands;
}

int64_t available_bytes(const Plan& plan) {
  const int64_t limit = static_cast<int64_t>(plan.recipe().memory.limit_gib * (1 << 30));
  const int64_t free = plan.device->properties().free_bytes;
  return limit > 0 ? std::min(limit, free) : free;
}

// The largest slice that fits: the smallest number of slices that divides the batch.
void settle_slices(Plan& plan) {
  auto& batch = plan.resolved.recipe.batch;
  if (!batch.slices.is_auto) return;
  for (int64_t slices = 1; slices <= batch.global; ++slices) {
    if (batch.global % slices != 0 || (!batch.strands.is_auto && slices % batch.strands.value != 0)) continue;
    program::MemoryPlan memory;
    compile_for(plan, slices, plan.recipe().memory.recompute, memory);
    if (memory.peak_bytes() > plan.available_bytes * 95 / 100 && slices != batch.global) continue;
    batch.slices = slices;
    plan.resolved.origin["batch.slices"] = "auto";
    return;
  }
}

// The batch's buffers are as large as the data's samples.
void settle_words(model::Model& model, const data::Dataset& dataset, int64_t seq_len) {
  const auto settle = [&](int64_t& words, int64_t given, const char* what) {
    const int64_t wanted = words > 0 ? words : model.predicts_tokens ? seq_len : given;
    if (wanted != given) {
      throw ConfigError(176, fmt::format("a sample of the data has {} {}, the model takes {}: bring data of that size, or "
                                         "build the model for this one",
                                         given, what, wanted));
    }
    if (!model.predicts_tokens) words = given;
  };
  settle(model.input_words, dataset.inputs_per_sample(seq_len), "inputs");
  settle(model.label_words, dataset.labels_per_sample(seq_len), "labels");
}

program::Layout layout_for(const Plan& plan, int64_t slices, const std::string& recompute) {
  const base::Recipe& recipe = plan.recipe();
  program::Layout layout;
  layout.slice = {recipe.batch.global / slices, recipe.data.seq_len};
  layout.slices = slices;
  layout.strands = recipe.batch.strands.is_auto ? default_strands(slices) : recipe.batch.strands.value;
  layout.recompute = program::parse_recompute(recompute, *plan.model);
  layout.moments = plan.optimizer.moments;
  layout.kernels = &kernels::kernels_for(plan.device->id().kind);
  return layout;
}

}  // namespace

program::Program compile_for(const Plan& plan, int64_t slices, const std::string& recompute, program::MemoryPlan& memory) {
  program::Program program = program::compile(*plan.model, layout_for(plan, slices, recompute));
  memory = program::place(program);
  return program;
}

Plan make_plan(base::Resolved resolved, Own own, bool must_fit) {
  Plan plan;
  check_batch(resolved.recipe);
  const device::Id id = device::resolve(resolved.recipe.run.device);
  device::set_thread_count(resolved.recipe.run.threads.is_auto ? 0 : static_cast<int>(resolved.recipe.run.threads.value));
  plan.dataset = own.dataset ? std::move(own.dataset) : data::open_dataset(resolved.recipe);
  plan.device = device::open(id);
  const DType compute = settle_precision(resolved, plan.device->properties());
  if (own.build_model) {
    plan.model = std::make_unique<model::Model>(own.build_model(resolved.recipe, compute));
  } else {
    model::resolve_model(resolved, plan.dataset->vocab());
    settle_logits_chunk(resolved, compute, id.kind == device::Kind::cuda);
    plan.model = std::make_unique<model::Model>(model::build_model(resolved.recipe, compute));
  }
  settle_words(*plan.model, *plan.dataset, resolved.recipe.data.seq_len);
  plan.optimizer = optim::make_optimizer(resolved.recipe, compute == DType::f16);
  plan.resolved = std::move(resolved);
  plan.available_bytes = available_bytes(plan);
  settle_slices(plan);
  auto& batch = plan.resolved.recipe.batch;
  if (batch.strands.is_auto) {
    batch.strands = default_strands(batch.slices.value);
    plan.resolved.origin["batch.strands"] = "auto";
  }
  plan.layout = layout_for(plan, batch.slices.value, plan.recipe().memory.recompute);
  plan.program = program::compile(*plan.model, plan.layout);
  program::check(plan.program, *plan.model);
  plan.memory = program::place(plan.program);
  if (must_fit && plan.memory.peak_bytes() > plan.available_bytes) throw_out_of_memory(plan, plan.available_bytes);
  return plan;
}

Session::Session(Plan from) : plan(std::move(from)) {
  try {
    memory = std::make_unique<Memory>(*plan.device, plan.program);
  } catch (const device::OutOfMemory& refused) {
    throw_out_of_memory(plan, refused.free_bytes);
  }
  parameters = std::make_unique<Parameters>(*plan.model, *memory, *plan.device);
  parameters->initialize(static_cast<uint64_t>(plan.recipe().run.seed), plan.optimizer.initial_loss_scale);
  if (!plan.recipe().model.from.empty()) load_weights(*parameters, plan.recipe().model.from);
  executor = std::make_unique<Executor>(*plan.model, plan.program, *memory, *plan.device,
                                        Executor::Options{.optimizer = plan.optimizer, .tf32 = plan.recipe().precision.tf32, .slice_ids = {}});
}

Session::~Session() = default;

}  // namespace lockstep::run
