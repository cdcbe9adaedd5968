// lockstep plan: what a run would take on machines that need not be here.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/apply.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/plan/modes.h"
#include "lockstep/cli/plan/report.h"
#include "lockstep/cli/plan/sweep.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/run/session/choose_layout.h"

namespace lockstep::cli {

namespace {

struct PlanWords {
  recipe::RecipeSource source;
  std::vector<std::string> on, quota;
  std::string region, tariff = "on_demand", scale, out, loss;
  double preemptions = 1;
  int64_t apply = 0;
  bool json = false, explain = false, quick = false, published = false, sweep = false;
};

// Whether the recipe says how its ranks share the work.
bool has_layout(const recipe::Resolved& resolved) {
  if (resolved.recipe.parallel.automatic) return false;
  for (const char* key : {"parallel.tensor", "parallel.context", "parallel.pipeline", "parallel.zero",
                          "parallel.shard", "parallel.data"}) {
    const auto origin = resolved.origin.find(key);
    if (origin != resolved.origin.end() && origin->second != "default") return true;
  }
  return false;
}

// The best layouts. Where none fits there are none, and the smallest is the one to look at: its forecast says
// how much is too much, and the menu what would help.
void add_layouts(Planned& planned, recipe::Resolved& resolved) {
  try {
    planned.layouts = run::layouts_on(resolved, planned.place, planned.own_layout);
    if (!planned.own_layout) run::take_layout(resolved, planned.layouts->best);
  } catch (const plan::NothingFits& none) {
    planned.nothing_fits = true;
    if (planned.own_layout) return;
    // What the recipe recomputes stays: changing it is up to the menu.
    const std::string origin = resolved.origin["memory.recompute"];
    run::take_layout(resolved, none.smallest);
    resolved.origin["memory.recompute"] = origin;
  }
}

// `resolved` gets the layout that is forecast, where it has none of its own.
Planned plan_on(recipe::Resolved& resolved, const plan::Place& place, const Paying& paying, bool search) {
  Planned planned{.place = place, .paying = paying};
  const bool own = planned.own_layout = has_layout(resolved);
  if (own)
    planned.forecast = run::forecast(resolved, place);  // what is impossible is said before a long search
  if (place.ranks > 1 && (search || !own)) add_layouts(planned, resolved);
  if (!own) planned.forecast = run::forecast(resolved, place);
  planned.bottleneck = run::bottleneck_of(planned.forecast, resolved.recipe, place);
  return planned;
}

// What is asked of the price list must be in it.
void check_price(const plan::Place& place, const Paying& paying) {
  const bool asked = !paying.region.empty() || paying.tariff != plan::Tariff::on_demand;
  if (!asked) return;
  if (place.row == nullptr)
    throw base::ConfigError(572,
                            fmt::format("{} have no price, so --region and --tariff say nothing; name what a "
                                        "cloud rents, such as --on a3-highgpu-8g",
                                        place.words));
  constexpr const char* kRemedy = "add one with `lockstep prices --update FILE`";
  if (!paying.region.empty() && place.row->price_in(paying.region) == nullptr) {
    std::vector<std::string> regions;
    for (const plan::RegionPrice& price : place.row->prices) regions.push_back(price.region);
    throw base::ConfigError(
        572, fmt::format("the catalogue has no price of {} in {}; it has {}; {}", place.row->name,
                         base::quoted(paying.region), base::join(regions, ", "), kRemedy));
  }
  if (place.price(paying.tariff, paying.region)) return;
  std::vector<std::string> others;
  for (const plan::Tariff tariff :
       {plan::Tariff::on_demand, plan::Tariff::spot, plan::Tariff::one_year, plan::Tariff::three_years}) {
    if (place.price(tariff, paying.region)) others.emplace_back(name_of(tariff));
  }
  throw base::ConfigError(
      572, fmt::format("the catalogue has no {} price of {}{}; it has {}; {}", name_of(paying.tariff),
                       place.row->name, paying.region.empty() ? "" : " in " + base::quoted(paying.region),
                       others.empty() ? "none" : base::join(others, ", "), kRemedy));
}

Paying parse_paying(const PlanWords& words) {
  const std::optional<plan::Tariff> tariff = plan::parse_tariff(words.tariff);
  if (!tariff) {
    throw base::ConfigError(109, fmt::format("--tariff {}: expected on_demand, spot, one_year or three_years",
                                             base::quoted(words.tariff)));
  }
  if (!(words.preemptions >= 0 && words.preemptions <= 1000))
    throw base::ConfigError(109, "--preemptions must be 0 to 1000 per machine and day");
  return {*tariff, words.region, words.preemptions};
}

void check_quota(const plan::Quota& quota, const plan::Place& place) {
  if (place.row == nullptr)
    throw base::ConfigError(109,
                            fmt::format("--quota is about machines that a cloud rents, and {} are nobody's; "
                                        "name one, such as --on a3-highgpu-8g",
                                        place.words));
  plan::check_cloud(quota, *place.row);
}

// What a mode does not read must not be taken for heeded.
void check_mode(const PlanWords& words) {
  struct Option {
    const char* name;
    bool given, with_sweep, with_scale;
  };
  const Option options[] = {{"--quota", !words.quota.empty(), false, false},
                            {"--loss", !words.loss.empty(), false, false},
                            {"--apply", words.apply != 0, false, false},
                            {"--explain", words.explain, false, false},
                            {"--quick", words.quick, false, false},
                            {"--scale", !words.scale.empty(), false, true},
                            {"--region", !words.region.empty(), true, false},
                            {"--tariff", words.tariff != "on_demand", true, false},
                            {"--out", !words.out.empty(), true, false}};
  const bool scale = !words.scale.empty();
  if (!words.sweep && !scale) {
    if (!words.out.empty()) throw base::ConfigError(109, "--out is for plan --sweep");
    return;
  }
  for (const Option& option : options) {
    if (option.given && !(words.sweep ? option.with_sweep : option.with_scale))
      throw base::ConfigError(
          109, fmt::format("{0} has no effect with {1}; leave it out, or plan without {1}", option.name,
                           words.sweep ? "--sweep" : "--scale"));
  }
}

int sweep(const PlanWords& words) {
  if (words.on.empty())
    throw base::ConfigError(109, "plan --sweep needs --on MACHINES, such as --on \"a3-highgpu-8g x 1:32\"");
  SweepWords asked{.places = parse_places(words.on), .paying = parse_paying(words), .out = words.out};
  asked.json = words.json;
  for (const plan::Place& place : asked.places) check_price(place, asked.paying);
  return plan_sweep(recipe::read_recipe(words.source), asked);
}

}  // namespace

int plan_command(Arguments& arguments) {
  PlanWords words;
  arguments.recipe(words.source);
  arguments.option("--on", words.on,
                   "where: 8xH100, \"a3-highgpu-8g x 32\", p5.48xlarge (`lockstep prices` lists them)");
  arguments.option("--region", words.region, "whose prices; default: the cheapest region");
  arguments.option("--tariff", words.tariff, "on_demand, spot, one_year or three_years");
  arguments.option("--preemptions", words.preemptions, "of a spot machine in a day, as you expect them");
  arguments.flag("--quick", words.quick, "do not look for better layouts than the recipe's");
  arguments.option("--scale", words.scale,
                   "FIRST:LAST ranks, doubled: weak and strong scaling, and what limits it");
  arguments.flag("--sweep", words.sweep,
                 "every layout on every --on: machines and counts with commas, \"a3-highgpu-8g x 1:32\"");
  arguments.option("--out", words.out, "with --sweep: write every layout that fits into this CSV file");
  arguments.option(
      "--quota", words.quota,
      "what you may rent: output of `gcloud compute regions describe`, `aws service-quotas`, or lines");
  arguments.flag("--published", words.published,
                 "compare forecasts with training figures that others have published");
  arguments.option(
      "--loss", words.loss,
      "also estimate the loss: chinchilla, a finished smaller RUN, or \"E=.. A=.. B=.. alpha=.. beta=..\"");
  arguments.option("--apply", words.apply,
                   "where it does not fit: write change N of the menu into the recipe file");
  arguments.flag("--explain", words.explain,
                 "print the figures that the forecast rests on, and their sources");
  arguments.flag("--json", words.json, "print one JSON object");
  arguments.example("lockstep plan recipes/llama-8b.toml --on 8xH100",
                    "step time by part, memory, days, dollars");
  arguments.example("lockstep plan recipes/llama-8b.toml --on \"a3-highgpu-8g x 4\" --tariff spot --json",
                    "on four rented machines, for a script");
  arguments.example("lockstep plan recipes/llama-1b.toml --on a2-ultragpu-1g --scale 1:8", "how it scales");
  arguments.example(
      "lockstep plan recipes/llama-8b.toml --on \"a3-highgpu-8g x 1:8, p5.48xlarge\" --sweep --out s.csv",
      "machines, counts and layouts beside each other");
  arguments.example("lockstep plan first.toml parallel.tensor=2 --on 2xL4 --explain", "one layout, and why");
  if (!arguments.parse()) return 0;
  if (words.published) return plan_published(words.json);
  if (words.apply < 0) throw base::ConfigError(109, "--apply N: expected a number of the menu, from 1 on");
  check_mode(words);
  if (words.sweep) return sweep(words);
  if (words.on.size() != 1) {
    throw base::ConfigError(
        109, words.on.empty() ? "plan needs --on MACHINES, such as --on 8xH100 (`lockstep prices` lists them)"
                              : "plan takes one --on");
  }
  const Paying paying = parse_paying(words);
  const plan::Place place = plan::parse_place(words.on[0]);
  check_price(place, paying);
  recipe::Resolved resolved = recipe::read_recipe(words.source);
  if (!words.scale.empty()) return plan_scale(resolved, place, words.scale, words.json);
  const std::optional<plan::Quota> quota = read_quotas(words.quota);
  if (quota) check_quota(*quota, place);
  Planned planned = plan_on(resolved, place, paying, !words.quick);
  if (quota) {
    planned.quota = plan::verdicts(
        *quota, {.row = place.row,
                 .machines = place.nodes,
                 .tariff = paying.tariff,
                 .region = paying.region,
                 .purpose = fmt::format("to train {} for {:.0f} hours", resolved.recipe.run.name,
                                        std::ceil(planned.forecast.hours))});
  }
  if (!words.loss.empty()) planned.loss = loss_to_expect(words.loss, planned.forecast);
  if (!planned.forecast.fits()) planned.menu = run::remedies_on(resolved, planned.place);
  if (words.json) {
    report_json(to_json(planned));
  } else {
    print_report(planned, resolved.recipe);
    if (words.explain) print_explanation(planned);
  }
  if (words.apply > 0) apply_remedy(words.source, planned.menu, words.apply);
  return planned.forecast.fits() && planned.in_quota() ? 0 : 1;
}

}  // namespace lockstep::cli
