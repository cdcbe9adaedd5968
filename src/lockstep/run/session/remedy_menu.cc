#include "lockstep/run/session/remedy_menu.h"

#include <algorithm>

#include "lockstep/plan/price.h"
#include "lockstep/run/session/choose_layout.h"
#include "lockstep/run/session/fitting.h"

namespace lockstep::run {

namespace {

constexpr size_t kMostRows = 8;

// What may be changed together, from what a person gives up most easily to everything.
constexpr Freedom kFreedoms[] = {
    {.recompute = true},
    {.logits = true},
    {.offload = true},
    {.recompute = true, .offload = true},
    {.recompute = true, .logits = true},
    {.moments = true},
    {.slices = true},
    {.slices = true, .strands = true},
    {.slices = true, .recompute = true, .logits = true},
    {.slices = true, .strands = true, .recompute = true},
    kAllFreedom,
};

double step_seconds(const Plan& plan, const Fitting& fitting, plan::Machine machine) {
  if (plan.own_model) return 0;
  machine.tf32 = plan.recipe().precision.tf32;
  const OtherStep step{.layout = layout_of(plan, fitting.variant),
                       .logits_chunk = fitting.variant.logits_chunk};
  const plan::Compiled compiled = compile_ranks(plan, step, Sizes::first);
  double seconds = plan::simulate(compiled.world, plan::price_on(machine, compiled.world),
                                  {.apart = plan::apart_on(machine, compiled.world)})
                       .step_seconds;
  // Moments in the host's memory come and go in every step.
  if (fitting.variant.offload && machine.host_bytes_per_second > 0)
    seconds += 2 * static_cast<double>(fitting.memory.host_bytes) / machine.host_bytes_per_second;
  return seconds;
}

}  // namespace

std::vector<MenuRow> remedy_menu(const Plan& plan, int64_t available, const plan::Machine& machine) {
  std::vector<MenuRow> menu;
  std::vector<Variant> offered;
  const Variant now = variant_of(plan);
  // Of those that are offered with more slices already, the next is one with fewer, and something else
  // besides.
  const auto is_new = [&](const Variant& v) {
    return std::none_of(offered.begin(), offered.end(), [&](const Variant& before) {
      return before.slices != now.slices && v.slices >= before.slices && v.strands == before.strands;
    });
  };
  FittingSearch search(plan, available);
  for (const Freedom& freedom : kFreedoms) {
    const std::optional<Fitting> found = search.cheapest(freedom, is_new);
    if (!found) continue;
    offered.push_back(found->variant);
    MenuRow row{.change = change_words(plan, found->variant),
                .price = change_price(plan, found->variant),
                .peak_bytes = found->memory.peak_bytes()};
    const bool known =
        std::any_of(menu.begin(), menu.end(), [&](const MenuRow& r) { return r.change == row.change; });
    if (known || row.change.empty()) continue;
    row.step_seconds = step_seconds(plan, *found, machine);
    menu.push_back(std::move(row));
  }
  std::stable_sort(menu.begin(), menu.end(),
                   [](const MenuRow& a, const MenuRow& b) { return a.step_seconds < b.step_seconds; });
  if (menu.size() > kMostRows) menu.resize(kMostRows);
  return menu;
}

}  // namespace lockstep::run
