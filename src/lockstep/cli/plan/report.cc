#include "lockstep/cli/plan/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/money.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/apply.h"
#include "lockstep/cli/print.h"
#include "lockstep/plan/money.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

constexpr double kGib = 1 << 30;
constexpr size_t kShownLayouts = 3;

std::string milliseconds(double seconds) { return fmt::format("{:.1f}", seconds * 1e3); }
std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }
std::string gib(int64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / kGib); }

// What evaluations and saves cost, which are the same whatever a step takes.
double besides_usd(const Planned& p, double usd_per_hour) {
  const run::Forecast& f = p.forecast;
  return usd_per_hour * (f.hours - static_cast<double>(f.steps) * f.step_seconds / 3600);
}

// Of the whole run, with steps that take so long; 0: no price is known.
double cost_of(const Planned& p, double step_seconds) {
  const auto price = p.place.price(p.paying.tariff, p.paying.region);
  if (!price) return 0;
  return besides_usd(p, price->usd_per_hour) +
         price->usd_per_hour / 3600 * step_seconds * static_cast<double>(p.forecast.steps);
}

std::string money_line(const Planned& p) {
  const auto price = p.place.price(p.paying.tariff, p.paying.region);
  if (!price) {
    return p.place.row == nullptr ? ""
                                  : fmt::format("; no {} price in the catalogue", name_of(p.paying.tariff));
  }
  return fmt::format(", {} ({} {}, {}/h)", money(*dollars(p)), name_of(p.paying.tariff), price->region,
                     money(price->usd_per_hour));
}

// Wrapped to the terminal, with a hanging indent.
void say(const std::string& text) {
  print("{}\n", base::hanging(text, terminal::terminal_of(STDOUT_FILENO).width, 2));
}

// "40 evaluations of 1.2 s each"
std::string times(double count, const char* what, double seconds) {
  if (count == 0) return fmt::format("no {}s", what);
  return fmt::format("{:.0f} {}{} of {}{}", count, what, count == 1 ? "" : "s", base::human_duration(seconds),
                     count == 1 ? "" : " each");
}

void print_head(const Planned& p, const recipe::Recipe& recipe) {
  const run::Forecast& f = p.forecast;
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  say(fmt::format("{} on {}: {}, {}{}, {} parameters, {} {} per step",
                  terminal.paint(recipe.run.name, terminal::Colour::bold), p.place.words, f.layout,
                  f.precision, f.recompute == "none" ? "" : ", recompute " + f.recompute,
                  base::human_count(static_cast<double>(f.parameters)), base::human_count(f.units_per_step),
                  f.unit));
  say(fmt::format("step {} (± {:.0f} %), {} {}/s, MFU {}", base::human_duration(f.step_seconds),
                  f.error * 100, base::human_count(f.units_per_second()), f.unit, percent(f.mfu)));
  say(fmt::format("{} steps: {}, {:.0f} kWh{}", f.steps, base::human_duration(f.hours * 3600), f.kwh,
                  money_line(p)));
  say(fmt::format("in it: {} and {}",
                  times(static_cast<double>(f.evaluations), "evaluation", f.evaluation_seconds),
                  times(f.saves(), "save", f.save_seconds)));
  if (p.loss)
    say(fmt::format("loss: estimated at {:.2f} ({:.2f} to {:.2f}) by {}", p.loss->estimate.loss,
                    p.loss->estimate.low, p.loss->estimate.high, p.loss->basis));
  if (!p.place.device->note.empty())
    say(fmt::format("note: {}: {}", p.place.device->name, p.place.device->note));
  if (!p.place.model.measured)
    say(fmt::format("not measured: figures of {} are its maker's and estimates", p.place.device->name));
}

// Who names no region may rent the other kind of machine in another one, too.
std::optional<plan::Place::Price> hourly_price(const Planned& p) {
  return p.place.price(plan::Tariff::on_demand, p.paying.region);
}

// " in us-central1", where the price that it is compared with is another region's.
std::string elsewhere(const Planned& p) {
  const auto price = p.place.price(p.paying.tariff, p.paying.region), hourly = hourly_price(p);
  return price && hourly && price->region != hourly->region ? " in " + hourly->region : "";
}

// What interruptions make of the run; nothing where it is not asked to run on spot machines.
std::optional<plan::Spot> spot_of(const Planned& p) {
  const auto price = p.place.price(p.paying.tariff, p.paying.region);
  if (!price || p.paying.tariff != plan::Tariff::spot) return std::nullopt;
  const auto hourly = hourly_price(p);
  const run::Forecast& f = p.forecast;
  return plan::expect_spot({.hours = f.hours - f.save_hours(),
                            .save_hours = f.save_hours(),
                            .machines = p.place.nodes,
                            .preemptions_per_day = p.paying.preemptions_per_day,
                            .save_seconds = f.save_seconds,
                            .usd_per_hour = price->usd_per_hour,
                            .on_demand_usd_per_hour = hourly ? hourly->usd_per_hour : 0});
}

// Steps between saves that lose least; nothing where nothing is ever lost.
std::optional<int64_t> checkpoint_every(const plan::Spot& spot, const run::Forecast& f) {
  if (spot.save_every_seconds <= 0) return std::nullopt;
  return static_cast<int64_t>(std::max(1.0, std::round(spot.save_every_seconds / f.step_seconds)));
}

nlohmann::ordered_json to_json(const plan::Spot& spot, const run::Forecast& f) {
  nlohmann::ordered_json json = {{"ends", spot.ends}};
  for (const char* key :
       {"preemptions", "hours", "usd", "low_usd", "high_usd", "saving_usd", "checkpoint_every"})
    json[key] = nullptr;
  if (!spot.ends) return json;
  json["preemptions"] = spot.preemptions, json["hours"] = spot.hours;
  json["usd"] = spot.usd, json["low_usd"] = spot.low_usd, json["high_usd"] = spot.high_usd;
  if (spot.on_demand_usd > 0) json["saving_usd"] = spot.saving();
  if (const auto every = checkpoint_every(spot, f)) json["checkpoint_every"] = *every;
  return json;
}

// Hours of use from which a commitment pays off, and of how many; nothing where it is not asked for.
struct BreakEven {
  double hours = 0, of = 0;
};
std::optional<BreakEven> break_even_of(const Planned& p) {
  const auto price = p.place.price(p.paying.tariff, p.paying.region);
  const auto hourly = hourly_price(p);
  const bool committed =
      p.paying.tariff == plan::Tariff::one_year || p.paying.tariff == plan::Tariff::three_years;
  if (!price || !hourly || !committed) return std::nullopt;
  const double term = (p.paying.tariff == plan::Tariff::one_year ? 1 : 3) * plan::kHoursOfYear;
  return BreakEven{plan::break_even_hours(hourly->usd_per_hour, price->usd_per_hour, term), term};
}

// What the tariff means for this run, in a sentence.
void print_tariff(const Planned& p) {
  if (const auto even = break_even_of(p))
    say(fmt::format("a commitment pays off from {:.0f} hours of use in {} on, of {:.0f}{}", even->hours,
                    even->of > plan::kHoursOfYear ? "3 years" : "a year", even->of,
                    elsewhere(p).empty() ? "" : ", next to on demand" + elsewhere(p)));
  const std::optional<plan::Spot> expected = spot_of(p);
  if (!expected) return;
  const plan::Spot& spot = *expected;
  const run::Forecast& f = p.forecast;
  const std::string rate =
      fmt::format("spot, at {:g} preemption{} per machine and day: ", p.paying.preemptions_per_day,
                  p.paying.preemptions_per_day == 1 ? "" : "s");
  if (!spot.ends) return say(rate + "it would never end, for machines go faster than they come back");
  const double saving = spot.saving();
  std::string line =
      fmt::format("{}{:.1f} expected ({:.0f} to {:.0f}), {} in all, {} ({} to {})", rate, spot.preemptions,
                  spot.low, spot.high, base::human_duration(spot.hours * 3600), money(spot.usd),
                  money(spot.low_usd), money(spot.high_usd));
  if (spot.on_demand_usd > 0)
    line += fmt::format(", {} {} than on demand{}", money(std::abs(saving)), saving < 0 ? "more" : "less",
                        elsewhere(p));
  if (const auto every = checkpoint_every(spot, f))
    line += fmt::format("; checkpoint.every={} loses least", *every);
  say(line);
}

void print_parts(const Planned& p) {
  const run::Forecast& f = p.forecast;
  terminal::Table time({"time", "ms", "share"}), memory({"memory of the fullest rank", "GiB", "share"});
  for (const size_t column : {1, 2}) time.align_right(column), memory.align_right(column);
  for (const plan::TimePart& part : f.parts)
    time.add({part.name, milliseconds(part.seconds), percent(part.seconds / f.step_seconds)});
  const auto peak = static_cast<double>(f.peak_bytes);
  for (const plan::MemoryPart& part : f.memory)
    memory.add({part.name, gib(part.bytes), percent(static_cast<double>(part.bytes) / peak)});
  memory.add({fmt::format("in all, of {} GiB", gib(f.available_bytes)), gib(f.peak_bytes),
              f.fits() ? "fits" : "does not fit"});
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  print("\n{}\n{}", time.to_text(terminal), memory.to_text(terminal));
  if (f.stage_bytes.size() < 2) return;
  std::vector<std::string> stages;
  for (const int64_t bytes : f.stage_bytes) stages.push_back(gib(bytes));
  say(fmt::format("the fullest rank of each stage: {} GiB", base::join(stages, ", ")));
}

void print_menu(const Planned& p) {
  if (p.forecast.fits()) return;
  const auto price = p.place.price(p.paying.tariff, p.paying.region);
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  if (p.menu.empty()) {
    print("\n");
    say("no change of slices, strands, recomputation, logits or moments makes it fit; use more ranks or "
        "another machine");
    return;
  }
  print("\n{}", menu_text(p.menu,
                          {.steps = p.forecast.steps,
                           .usd_per_second = price ? price->usd_per_hour / 3600 : 0,
                           .besides_usd = price ? besides_usd(p, price->usd_per_hour) : 0},
                          terminal.width));
  print("--apply N writes one of them into the recipe file\n");
}

void print_quota(const Planned& p) {
  if (!p.quota) return;
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  if (p.quota->empty()) {
    print("\n");
    say(fmt::format("quota: the files say nothing about {} ({})", p.place.row->name,
                    name_of(p.paying.tariff)));
    return;
  }
  terminal::Table table({"quota in", "limit", "in use", "needed", "", ""});
  for (const size_t column : {1, 2, 3}) table.align_right(column);
  for (const plan::QuotaVerdict& v : *p.quota)
    table.add({v.region, v.limit < plan::kNoLimit ? fmt::format("{:.0f}", v.limit) : "none",
               fmt::format("{:.0f}", v.used), fmt::format("{:.0f} {}", v.needed, v.counts),
               v.fits() ? "fits" : "does not fit", v.name});
  print("\n{}", table.to_text(terminal));
  if (!p.in_quota()) print("\nto ask for more:\n  {}\n", p.quota->front().ask);
}

void print_layouts(const Planned& p) {
  if (p.nothing_fits && !p.forecast.fits())
    say(fmt::format("no layout of {} ranks fits{}", p.place.ranks,
                    p.own_layout ? "" : "; this one needs the least memory"));
  if (!p.layouts) return;
  terminal::Table table({"best layouts", "step", "GiB", "cost", ""});
  for (const size_t column : {1, 2, 3}) table.align_right(column);
  size_t shown = 0;
  for (const plan::Trial& trial : p.layouts->trials) {
    if (!trial.fits || shown++ >= kShownLayouts) break;
    const double usd = cost_of(p, trial.step_seconds);
    const std::string own = trial.candidate.layout.words() == p.forecast.layout ? "this forecast" : "";
    table.add({breakable(trial.candidate.words()), base::human_duration(trial.step_seconds),
               gib(trial.peak_bytes), usd > 0 ? money(usd) : "-", own});
  }
  print("\n{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)));
}

}  // namespace

std::string breakable(const std::string& words) {
  std::string out;
  for (const char c : words) out += c == ',' ? std::string(", ") : std::string(1, c);
  return out;
}

std::string money(double usd) { return base::dollars(usd); }

std::optional<double> dollars(const Planned& p) {
  const auto price = p.place.price(p.paying.tariff, p.paying.region);
  if (!price) return std::nullopt;
  return price->usd_per_hour * p.forecast.hours;
}

void print_report(const Planned& p, const recipe::Recipe& recipe) {
  print_head(p, recipe);
  print_tariff(p);
  print_parts(p);
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  print("\n{}\n", base::hanging(fmt::format("bottleneck: {}, {} of the step; {}", p.bottleneck.part,
                                            percent(p.bottleneck.share), p.bottleneck.remedy),
                                terminal.width, 2));
  print_layouts(p);
  print_menu(p);
  print_quota(p);
}

bool Planned::in_quota() const {
  return !quota ||
         std::any_of(quota->begin(), quota->end(), [](const plan::QuotaVerdict& v) { return v.fits(); });
}

nlohmann::ordered_json to_json(const Planned& p) {
  using nlohmann::ordered_json;
  const run::Forecast& f = p.forecast;
  ordered_json parts = ordered_json::object(), memory = ordered_json::object(),
               layouts = ordered_json::array(), stages = ordered_json::array();
  for (const plan::TimePart& part : f.parts) parts[part.name] = part.seconds * 1e3;
  for (const plan::MemoryPart& part : f.memory) memory[part.name] = static_cast<double>(part.bytes) / kGib;
  for (const int64_t bytes : f.stage_bytes) stages.push_back(static_cast<double>(bytes) / kGib);
  if (p.layouts) {
    for (const plan::Trial& trial : p.layouts->trials) {
      if (!trial.fits) continue;
      const double usd = cost_of(p, trial.step_seconds);
      layouts.push_back({{"layout", trial.candidate.layout.words()},
                         {"recompute", trial.candidate.recompute},
                         {"step_ms", trial.step_seconds * 1e3},
                         {"memory_gib", static_cast<double>(trial.peak_bytes) / kGib},
                         {"usd", usd > 0 ? ordered_json(usd) : ordered_json(nullptr)}});
    }
  }
  const auto usd = dollars(p);
  ordered_json quota = nullptr;  // none was given
  if (p.quota) quota = ordered_json::array();
  for (const plan::QuotaVerdict& v : p.quota.value_or(std::vector<plan::QuotaVerdict>{}))
    quota.push_back({{"region", v.region},
                     {"name", v.name},
                     {"counts", v.counts},
                     {"needed", v.needed},
                     {"limit", v.limit},
                     {"used", v.used},
                     {"fits", v.fits()},
                     {"ask", v.ask}});
  ordered_json menu = ordered_json::array();
  const auto price = p.place.price(p.paying.tariff, p.paying.region);
  for (const run::MenuRow& row : p.menu)
    menu.push_back({{"change", row.change},
                    {"memory_gib", static_cast<double>(row.peak_bytes) / kGib},
                    {"step_ms", row.step_seconds * 1e3},
                    {"usd", price ? ordered_json(cost_of(p, row.step_seconds)) : ordered_json(nullptr)},
                    {"price", row.price}});
  ordered_json spot = nullptr, commitment = nullptr;
  if (const auto even = break_even_of(p))
    commitment = {{"break_even_hours", even->hours}, {"hours_of_term", even->of}};
  if (const auto expected = spot_of(p)) spot = to_json(*expected, f);
  ordered_json loss = nullptr;
  if (p.loss)
    loss = {{"estimate", p.loss->estimate.loss},
            {"low", p.loss->estimate.low},
            {"high", p.loss->estimate.high},
            {"basis", p.loss->basis}};
  return {{"on", p.place.words},
          {"ranks", p.place.ranks},
          {"nodes", p.place.nodes},
          {"layout", f.layout},
          {"precision", f.precision},
          {"recompute", f.recompute},
          {"step_ms", f.step_seconds * 1e3},
          {"parts", parts},
          {"memory_gib", static_cast<double>(f.peak_bytes) / kGib},
          {"memory", memory},
          {"memory_gib_by_stage", stages},
          {"available_gib", static_cast<double>(f.available_bytes) / kGib},
          {"fits", f.fits()},
          {"mfu", f.mfu},
          {"tokens_per_s", f.units_per_second()},
          {"steps", f.steps},
          {"evaluations", {{"times", f.evaluations}, {"ms", f.evaluation_seconds * 1e3}}},
          {"saves", {{"times", f.saves()}, {"ms", f.save_seconds * 1e3}}},
          {"hours", f.hours},
          {"usd", usd ? ordered_json(*usd) : ordered_json(nullptr)},
          {"spot", spot},
          {"commitment", commitment},
          {"kwh", f.kwh},
          {"error", f.error},
          {"measured", p.place.model.measured},
          {"bottleneck",
           {{"part", p.bottleneck.part}, {"share", p.bottleneck.share}, {"remedy", p.bottleneck.remedy}}},
          {"layouts", layouts},
          {"loss", loss},
          {"remedies", menu},
          {"quota", quota}};
}

void print_explanation(const Planned& p) {
  const plan::Machine& m = p.place.model;
  const auto tflops = [](double flops) { return fmt::format("{:.0f} TFLOP/s", flops / 1e12); };
  terminal::Table table({"what", "figure", "how it is used"});
  table.add({"large products, half precision", tflops(m.flops_half * m.reached),
             fmt::format("{} of the peak", percent(m.reached))});
  if (m.flops_fp8 > 0)
    table.add({"large products, fp8", tflops(m.flops_fp8 * m.reached_fp8),
               fmt::format("{} of the peak", percent(m.reached_fp8))});
  table.add(
      {"each product", fmt::format("{:.0f} us", m.ramp_seconds * 1e6),
       fmt::format("until all units work; {} of its operands' traffic is not hidden", percent(m.spill))});
  table.add({"attention, heads of 128, long", tflops(m.flops_half * m.attention_forward.reached_128),
             fmt::format("forward; half of it at {:.0f} tokens; backward {}", m.attention_forward.half_length,
                         tflops(m.flops_half * m.attention_backward.reached_128))});
  table.add({"passes over memory",
             fmt::format("{:.0f} GB/s", m.memory_bytes_per_second * m.memory_reached / 1e9),
             fmt::format("{} of the peak", percent(m.memory_reached))});
  table.add(
      {"between devices of a node", fmt::format("{:.0f} GB/s", m.inside.bytes_per_second / 1e9),
       fmt::format("of one rank in one direction, {:.0f} us each hop", m.inside.latency_seconds * 1e6)});
  table.add({"between nodes", fmt::format("{:.1f} GB/s", m.between.bytes_per_second / 1e9),
             fmt::format("of one rank; nodes of {}, {:.0f} us each hop", m.ranks_per_node,
                         m.between.latency_seconds * 1e6)});
  table.add({"memory", fmt::format("{} GiB", gib(m.memory_bytes)), "what a process can have"});
  print("\n{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)));
  say(fmt::format("device: {} ({}, {})", p.place.device->title, p.place.device->source.where,
                  p.place.device->source.checked));
  if (p.place.row != nullptr)
    say(fmt::format("price: {} ({})", p.place.row->source.where, p.place.row->source.checked));
}

}  // namespace lockstep::cli
