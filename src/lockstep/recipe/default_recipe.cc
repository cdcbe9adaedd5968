#include "lockstep/recipe/schema.h"

namespace lockstep::recipe {

std::string_view default_recipe() {
  static constexpr char kText[] = {
#include "lockstep_default_recipe.inc"
  };
  return {kText, sizeof(kText)};
}

void fit_default_recipe(Resolved& resolved) {
  auto& batch = resolved.recipe.batch;
  std::string& origin = resolved.origin.at("batch.slices");
  const int64_t strands = batch.strands.is_auto ? 1 : batch.strands.value;
  const auto fits = [&](int64_t slices) { return batch.global % slices == 0 && slices % strands == 0; };
  if (!origin.starts_with(kDefaultRecipe) || batch.slices.is_auto || fits(batch.slices.value)) return;
  int64_t slices = batch.slices.value;
  while (slices > 0 && !fits(slices)) --slices;
  if (slices == 0 && !fits(slices = strands)) return;  // no slices suit both: the user hears it
  batch.slices = slices;
  origin = "default recipe, for this batch";
}

}  // namespace lockstep::recipe
