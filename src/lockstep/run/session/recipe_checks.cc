#include "lockstep/run/session/recipe_checks.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/kind.h"
#include "lockstep/model/families/family.h"
#include "lockstep/recipe/mistakes.h"
#include "lockstep/run/session/batch_error.h"
#include "lockstep/run/session/layout_checks.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/session/rank_layout.h"

namespace lockstep::run {

using base::ConfigError;

void check_fp8_device(const recipe::Recipe& recipe, const device::Properties& device) {
  if (!device.fp8) {
    throw ConfigError(184, fmt::format("precision.compute = \"fp8\" needs a GPU of compute capability 8.9 or "
                                       "newer, but {} is {}; set precision.compute=bf16",
                                       device.name, device.instruction_set));
  }
  const bool gpu = device.instruction_set.starts_with("sm_");
  if (gpu && device.instruction_set != "sm_90" && recipe.precision.fp8_scaling != "tensor") {
    throw ConfigError(184, fmt::format("precision.fp8_scaling = \"{}\" needs a GPU of compute capability "
                                       "9.0, but {} is {}; set precision.fp8_scaling=tensor",
                                       recipe.precision.fp8_scaling, device.name, device.instruction_set));
  }
}

void check_batch(const recipe::Recipe& recipe) {
  const auto& b = recipe.batch;
  if (!b.slices.is_auto && b.global % b.slices.value != 0) {
    throw BatchContradictionError(
        150, fmt::format("batch.slices = {} does not divide batch.global = {}; choose one of {}",
                         b.slices.value, b.global, base::divisors_near(b.global, b.slices.value)));
  }
  if (!b.strands.is_auto && b.slices.is_auto && b.global % b.strands.value != 0) {
    throw BatchContradictionError(
        151, fmt::format("batch.strands = {} does not divide batch.global = {}, so no batch.slices suits "
                         "both; choose one of {}",
                         b.strands.value, b.global, base::divisors_near(b.global, b.strands.value)));
  }
  if (!b.strands.is_auto && !b.slices.is_auto && b.slices.value % b.strands.value != 0) {
    throw BatchContradictionError(151, fmt::format("batch.strands = {} does not divide batch.slices = {}; "
                                                   "choose one of {} (batch.strands=auto uses the largest)",
                                                   b.strands.value, b.slices.value,
                                                   base::divisors_near(b.slices.value, b.strands.value)));
  }
  if (recipe.tune.loss != "dpo") return;
  if (b.global % 2 != 0) {
    throw BatchContradictionError(
        395,
        fmt::format("batch.global = {} is odd, but tune.loss = \"dpo\" trains on pairs, two samples each; "
                    "set batch.global={}",
                    b.global, b.global + 1));
  }
  if (!b.slices.is_auto && b.global / b.slices.value % 2 != 0) {
    throw BatchContradictionError(
        395,
        fmt::format("batch.slices = {} leaves {} samples to a slice, but tune.loss = \"dpo\" keeps the two "
                    "of a pair together; choose one of {}",
                    b.slices.value, b.global / b.slices.value,
                    base::divisors_near(b.global / 2, b.slices.value)));
  }
}

void check_before_opening(recipe::Resolved& resolved, const Own& own, const PlanOptions& options) {
  recipe::Mistakes mistakes;
  mistakes.note([&] { check_batch(resolved.recipe); });
  if (!own.dataset) mistakes.note([&] { data::resolve_kind(resolved, options.reads_data); });
  if (!own.build_model) {
    mistakes.note([&] {
      adopt_model(resolved);
      recipe::Resolved tried = resolved;
      model::resolve_model(tried, 1);  // its vocabulary is held against the data's when that is open
    });
  }
  mistakes.refuse("the recipe");
}

void check_engine(const recipe::Recipe& recipe, bool cpu) {
  const comm::Engine* engine = comm::find_engine(recipe.parallel.engine);
  if (!cpu || engine == nullptr || engine->carries_memory_of(device::Kind::cpu)) return;
  throw ConfigError(522, fmt::format("parallel.engine = \"{}\" is for GPUs, but the ranks compute on the "
                                     "CPU; leave it \"auto\", or set run.device=cuda",
                                     engine->name));
}

void check_layout(const recipe::Recipe& recipe, int ranks) {
  check_batch(recipe);
  check_engine(recipe, ranks > 1 && recipe.run.device == "cpu");
  const program::DataRanks layout = rank_layout(recipe, {.world = ranks}).data;
  if (!recipe.batch.slices.is_auto && !recipe.batch.strands.is_auto) check_strands(recipe, layout);
  if (layout.width() > recipe.batch.global) {
    throw ConfigError(154,
                      fmt::format("batch.global = {} samples cannot be distributed over {} data ranks; start "
                                  "at most {}, or raise batch.global, which changes the bits of the result",
                                  recipe.batch.global, layout.width(), recipe.batch.global));
  }
}

}  // namespace lockstep::run
