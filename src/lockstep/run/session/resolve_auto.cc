#include "lockstep/run/session/resolve_auto.h"

#include <algorithm>

#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/run/session/fitting.h"
#include "lockstep/run/session/layout_checks.h"
#include "lockstep/run/session/recipe_checks.h"

namespace lockstep::run {

using device::DType;

namespace {

// As many as slices, but not above 8, unless there are more ranks.
int64_t default_strands(int64_t slices, int64_t width) {
  int64_t strands = std::min<int64_t>(slices, std::max<int64_t>(8, width));
  while (slices % strands != 0) --strands;
  return strands;
}

// Whether the device really gives what the plan needs: asked for and handed back at once.
bool trial(device::Device& device, const program::MemoryPlan& memory) {
  void* kept = nullptr;
  try {
    kept = device.allocate(memory.persistent_bytes);
    device.free(device.allocate(memory.transient_bytes + memory.external_bytes));
    device.free(kept);
    return true;
  } catch (const device::OutOfMemory&) {
    if (kept != nullptr) device.free(kept);
    return false;
  }
}

// The largest slice that fits: the smallest number of slices that divides the batch.
void resolve_slices(Plan& plan) {
  auto& batch = plan.resolved.recipe.batch;
  if (!batch.slices.is_auto) return;
  const int64_t most = batch.global / (plan.model->pairs ? 2 : 1);  // of a pair, both are in one
  for (int64_t slices = 1; slices <= most; ++slices) {
    if (most % slices != 0 || (!batch.strands.is_auto && slices % batch.strands.value != 0)) continue;
    const int64_t width = plan.layout.ranks.width(), stages = plan.layout.stages.count;
    const int64_t strands = batch.strands.is_auto ? default_strands(slices, width) : batch.strands.value;
    // A strand for every data rank, and a slice for every stage. Where even the smallest slices are too few,
    // check_strands() says so.
    const bool enough = strands >= width && slices >= width * stages;
    if (!enough && slices != most) continue;
    if (slices != most) {
      Variant variant = variant_of(plan);
      variant.slices = slices, variant.strands = strands;
      program::Program program = program::compile(*plan.model, layout_of(plan, variant));
      const program::MemoryPlan memory = program::place(program);
      const bool fits = memory.peak_bytes() <= plan.available_bytes * 95 / 100 &&
                        (!plan.exists || trial(*plan.device, memory));
      if (!fits) continue;
    }
    batch.slices = slices;
    plan.resolved.origin["batch.slices"] = "auto";
    return;
  }
}

}  // namespace

DType resolve_precision(recipe::Resolved& resolved, const device::Properties& device, bool own_model) {
  std::string& requested = resolved.recipe.precision.compute;
  if (requested == "auto") {
    requested = own_model ? "fp32" : device.fast_bf16 ? "bf16" : device.fast_fp16 ? "fp16" : "fp32";
    resolved.origin["precision.compute"] = "auto";
  }
  if (requested == "fp8") check_fp8_device(resolved.recipe, device);
  return requested == "bf16" || requested == "fp8" ? DType::bf16
         : requested == "fp16"                     ? DType::f16
                                                   : DType::f32;
}

void resolve_logits_chunk(recipe::Resolved& resolved, DType compute, bool cuda) {
  recipe::AutoInt& chunk = resolved.recipe.memory.logits_chunk;
  if (!chunk.is_auto) return;
  const int64_t budget = cuda ? int64_t{1} << 30 : int64_t{64} << 20;
  const int64_t rows = budget / (resolved.recipe.model.vocab.value * device::size_of(compute));
  chunk = std::max<int64_t>(64, rows / 64 * 64);
  resolved.origin["memory.logits_chunk"] = "auto";
}

void resolve_layout(Plan& plan) {
  resolve_slices(plan);
  auto& batch = plan.resolved.recipe.batch;
  if (batch.strands.is_auto) {
    batch.strands = default_strands(batch.slices.value, plan.layout.ranks.width());
    plan.resolved.origin["batch.strands"] = "auto";
  }
  check_strands(plan.recipe(), plan.layout.ranks);
  model::check_fp8_slice(plan.recipe(), plan.model->parts);
  std::string& recompute = plan.resolved.recipe.memory.recompute;
  plan.layout = layout_of(plan, variant_of(plan));
  if (recompute == "auto") {
    recompute = plan.layout.recompute.cheap ? "cheap" : "none";
    plan.resolved.origin["memory.recompute"] = "auto";
  }
}

void resolve_smaller(Plan& plan) {
  const auto open = [&](const char* key) { return plan.resolved.origin.at(key) == "auto"; };
  const Freedom freedom{.slices = open("batch.slices"),
                        .fewer_slices = open("batch.slices"),
                        .strands = open("batch.strands"),
                        .recompute = open("memory.recompute")};
  const std::optional<Fitting> found = cheapest_fitting(plan, freedom, plan.available_bytes * 95 / 100);
  if (!found || (plan.exists && !trial(*plan.device, found->memory))) return;
  recipe::Recipe& recipe = plan.resolved.recipe;
  recipe.batch.slices = found->variant.slices;
  recipe.batch.strands = found->variant.strands;
  recipe.memory.recompute = found->variant.recompute;
  plan.layout = layout_of(plan, found->variant);
  plan.program = program::compile(*plan.model, plan.layout);
  plan.memory = program::place(plan.program);
}

}  // namespace lockstep::run
