// lockstep shop: where to rent for a run, over every machine of the catalogue.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/money.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/plan/offers.h"
#include "lockstep/cli/plan/report.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/plan/shop/deadline.h"
#include "lockstep/plan/shop/where.h"
#include "lockstep/run/session/forecast.h"
#include "lockstep/terminal/live_line.h"
#include "lockstep/terminal/scatter.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {

namespace {

using base::ConfigError;

constexpr size_t kMarks = 26;
constexpr int64_t kMostBytes = 64 << 20;                // of a quota file
constexpr const char* kDesks[] = {"this", "RTX-4090"};  // GPUs that stand under desks

struct ShopWords {
  recipe::RecipeSource source;
  std::vector<std::string> quota;
  std::string tokens, by, most_usd, only, region, tariff;
  double preemptions = 1;
  int64_t machines = 8, shown = 12;
  bool json = false, choose = false;
};

// "20B", "500M", "1e9".
double parse_tokens(const std::string& words) {
  std::string_view text = base::trimmed(words);
  double times = 1;
  for (const auto& [unit, value] : std::initializer_list<std::pair<char, double>>{
           {'k', 1e3}, {'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}}) {
    if (text.ends_with(unit)) times = value, text.remove_suffix(1);
    if (times > 1) break;
  }
  const auto number = base::parse_number<double>(base::trimmed(text));
  if (!number || !(*number * times >= 1 && *number * times <= 1e18))
    throw ConfigError(
        109, fmt::format("--tokens {}: expected a number such as 20B, 500M or 1e9", base::quoted(words)));
  return *number * times;
}

// The recipe with as many steps as the tokens take.
void take_tokens(recipe::Resolved& resolved, const std::string& words) {
  if (words.empty()) return;
  const double per_step =
      static_cast<double>(resolved.recipe.batch.global) * static_cast<double>(resolved.recipe.data.seq_len);
  const double steps = std::ceil(parse_tokens(words) / per_step);
  if (steps > 1e9)
    throw ConfigError(109,
                      fmt::format("--tokens {} would be {:.3g} steps of {:.0f} tokens; raise batch.global",
                                  base::quoted(words), steps, per_step));
  resolved.recipe.run.steps = static_cast<int64_t>(steps);
}

// Before a long search for what no machine has a price of.
void check_region(const ShopOptions& options) {
  if (options.region.empty()) return;
  std::vector<std::string> regions;
  for (const plan::MachineRow& row : plan::catalogue().machines) {
    if (row.price_in(options.region) != nullptr) return;
    for (const plan::RegionPrice& price : row.prices) regions.push_back(price.region);
  }
  const std::string near = base::nearest_word(options.region, regions);
  throw ConfigError(
      572, fmt::format("--region {}: the catalogue has no price there{}; `lockstep prices --json` has "
                       "every region",
                       base::quoted(options.region),
                       near.empty() ? "" : fmt::format(" (did you mean {}?)", near)));
}

ShopOptions options_of(const ShopWords& words) {
  ShopOptions options{.preemptions_per_day = words.preemptions, .only = words.only, .region = words.region};
  if (!words.by.empty()) options.hours = plan::hours_until(words.by, std::time(nullptr));
  if (!words.most_usd.empty()) {
    options.usd = base::parse_dollars(words.most_usd);
    if (!options.usd || *options.usd <= 0)
      throw ConfigError(
          109, fmt::format("--max {}: expected dollars, such as '$2000'", base::quoted(words.most_usd)));
  }
  if (!words.tariff.empty()) {
    const auto tariff = plan::parse_tariff(words.tariff);
    if (!tariff)
      throw ConfigError(109, fmt::format("--tariff {}: expected on_demand, spot, one_year or three_years",
                                         base::quoted(words.tariff)));
    options.tariffs = {*tariff};
  }
  if (!(words.preemptions >= 0 && words.preemptions <= 1000))
    throw ConfigError(109, "--preemptions must be 0 to 1000 per machine and day");
  if (words.machines < 1 || words.machines > 4096) throw ConfigError(109, "--machines must be 1 to 4096");
  if (words.shown < 1) throw ConfigError(109, "--show must be 1 or more");
  options.most_machines = static_cast<int>(words.machines);
  options.quota = read_quotas(words.quota);
  if (words.choose && options.only.empty()) options.only = "gcp";
  check_region(options);
  return options;
}

const Offer* cheapest(const Offers& offers) {
  return !offers.list.empty() && offers.list[0].will_do() ? &offers.list[0] : nullptr;
}

const Offer* fastest(const Offers& offers) {
  const Offer* best = nullptr;
  for (const Offer& offer : offers.list) {
    if (offer.will_do() && (best == nullptr || offer.hours < best->hours)) best = &offer;
  }
  return best;
}

std::string offer_words(const Offer& offer) {
  return fmt::format("{} {} in {}: {}, {} (± {:.0f} %), {}", offer.place.words, name_of(offer.tariff),
                     offer.region, base::human_duration(offer.hours * 3600), base::dollars(offer.usd),
                     offer.error * 100, offer.layout);
}

std::string mark_of(size_t k) { return k < kMarks ? std::string(1, static_cast<char>('a' + k)) : ""; }

void print_table(const Offers& offers, size_t shown, const terminal::Terminal& terminal) {
  terminal::Table table({"", "machines", "where", "time", "cost", ""});
  for (const size_t column : {3, 4}) table.align_right(column);
  std::vector<terminal::Point> points;
  for (size_t k = 0; k < offers.list.size(); ++k) {
    const Offer& o = offers.list[k];
    if (k < kMarks) points.push_back({o.hours, o.usd, mark_of(k)[0]});
    if (k >= shown) continue;
    table.add({mark_of(k), o.place.words,
               fmt::format("{} {}, {}", o.place.row->cloud, o.region, name_of(o.tariff)),
               base::human_duration(o.hours * 3600), base::dollars(o.usd), o.against});
  }
  print("{}", table.to_text(terminal));
  if (offers.list.size() > shown)
    print("... and {} more (--show {})\n", offers.list.size() - shown, offers.list.size());
  if (points.size() > 1)
    print("\ncost against time:\n{}",
          terminal::draw_points(points,
                                {.width = std::min<size_t>(terminal.width, 76),
                                 .x_text = [](double hours) { return base::human_duration(hours * 3600); },
                                 .y_text = [](double usd) { return base::dollars(usd); }}));
}

// What stands in the way of an offer that misses nothing else.
void print_request(const Offers& offers) {
  for (const Offer& offer : offers.list) {
    if (!offer.quota || offer.quota->ask.empty() || offer.against.find("too ") != std::string::npos) continue;
    print("\nmore quota would allow {} for {}:\n  {}\n", offer.place.words, base::dollars(offer.usd),
          offer.quota->ask);
    return;
  }
}

void print_refused(const Offers& offers, const terminal::Terminal& terminal) {
  if (offers.refused.empty()) return;
  std::vector<std::string> names;
  for (const auto& [name, why] : offers.refused) names.push_back(name);
  print("\n{}\n",
        base::hanging(fmt::format("not on {}: {}", base::join(names, ", "), offers.refused[0].second),
                      terminal.width, 2));
}

// On one GPU that somebody may have; nothing where it does not fit, or the catalogue has none.
void add_workstation(plan::RunShape& shape, const recipe::Resolved& resolved) {
  for (const char* name : kDesks) {
    const plan::DeviceRow* device = plan::catalogue().find_device(name);
    if (device == nullptr || device->maker == "cpu") continue;
    try {
      const run::Forecast f = run::forecast(resolved, plan::parse_place(name));
      if (!f.fits()) continue;
      shape.workstation_hours = f.hours, shape.workstation = device->name;
      return;
    } catch (const base::ConfigError&) {
      continue;
    }
  }
}

std::vector<plan::Home> homes_for(const Offer& offer, const recipe::Resolved& resolved,
                                  const ShopOptions& options) {
  plan::RunShape shape{.machines = offer.place.nodes,
                       .devices = offer.place.ranks,
                       .hours = offer.hours,
                       .usd = offer.usd,
                       .spot = offer.tariff == plan::Tariff::spot,
                       .machine = offer.place.row->name,
                       .wanted_hours = options.hours};
  add_workstation(shape, resolved);
  return plan::rank_homes(shape);
}

void print_homes(const std::vector<plan::Home>& homes, const Offer& offer,
                 const terminal::Terminal& terminal) {
  terminal::Table table({"where", "", "why"});
  for (size_t k = 0; k < homes.size(); ++k) table.add({homes[k].name, k == 0 ? "chosen" : "", homes[k].why});
  print("\n{}", table.to_text(terminal));
  if (!homes[0].target.empty())
    print("\n  lockstep submit RECIPE --to {} --nodes {} --set machine={}{}\n", homes[0].target,
          offer.place.nodes, offer.place.row->name,
          offer.tariff == plan::Tariff::spot ? " --set spot=true" : "");
}

nlohmann::ordered_json to_json(const Offer& o) {
  nlohmann::ordered_json out{{"on", o.place.words},
                             {"machine", o.place.row->name},
                             {"machines", o.place.nodes},
                             {"cloud", o.place.row->cloud},
                             {"region", o.region},
                             {"tariff", name_of(o.tariff)},
                             {"layout", o.layout},
                             {"step_ms", o.step_seconds * 1e3},
                             {"hours", o.hours},
                             {"usd", o.usd},
                             {"usd_per_hour", o.usd_per_hour},
                             {"error", o.error},
                             {"measured", o.measured},
                             {"will_do", o.will_do()},
                             {"against", o.against}};
  if (o.quota)
    out["quota"] = {{"name", o.quota->name}, {"needed", o.quota->needed}, {"limit", o.quota->limit},
                    {"used", o.quota->used}, {"fits", o.quota->fits()},   {"ask", o.quota->ask}};
  return out;
}

void print_json(const Offers& offers, const std::vector<plan::Home>& homes) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array(), refused = nlohmann::ordered_json::array(),
                         where = nlohmann::ordered_json::array();
  for (const Offer& offer : offers.list) list.push_back(to_json(offer));
  for (const auto& [name, why] : offers.refused) refused.push_back({{"machine", name}, {"why", why}});
  for (const plan::Home& home : homes)
    where.push_back({{"name", home.name}, {"target", home.target}, {"suits", home.suits}, {"why", home.why}});
  nlohmann::ordered_json out{{"steps", offers.steps}, {"cheapest", nullptr}, {"fastest", nullptr}};
  if (const Offer* best = cheapest(offers)) out["cheapest"] = to_json(*best);
  if (const Offer* best = fastest(offers)) out["fastest"] = to_json(*best);
  out["offers"] = std::move(list), out["refused"] = std::move(refused);
  if (!where.empty()) out["where"] = std::move(where);
  report_json(out);
}

void print_offers(const Offers& offers, const ShopWords& words, const std::vector<plan::Home>& homes) {
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  const Offer *cheap = cheapest(offers), *fast = fastest(offers);
  const auto line = [&](const char* title, const Offer& offer) {
    print("{}\n", base::hanging(
                      fmt::format("{} {}", terminal.paint(title, terminal::Colour::bold), offer_words(offer)),
                      terminal.width, 2));
  };
  if (cheap != nullptr) line("cheapest:", *cheap);
  if (fast != nullptr && fast != cheap) line("fastest:", *fast);
  if (cheap == nullptr) print("nothing meets every requirement; nearest first:\n");
  print("\n");
  print_table(offers, static_cast<size_t>(words.shown), terminal);
  print_refused(offers, terminal);
  print_request(offers);
  if (!homes.empty()) print_homes(homes, cheap != nullptr ? *cheap : offers.list[0], terminal);
}

}  // namespace

std::optional<plan::Quota> read_quotas(const std::vector<std::string>& files) {
  if (files.empty()) return std::nullopt;
  plan::Quota all;
  for (const std::string& file : files) {
    const base::ReadResult read = base::try_read_file(file, kMostBytes);
    if (!read.problem.empty())
      throw ConfigError(574, fmt::format("--quota {} cannot be read: {}", base::quoted(file), read.problem));
    all.add(plan::read_quota(read.text, file));
  }
  return all;
}

int shop_command(Arguments& arguments) {
  ShopWords words;
  arguments.recipe(words.source);
  arguments.option("--tokens", words.tokens, "how many to train on: 20B, 500M; default: the recipe's steps");
  arguments.option("--by", words.by, "a day (friday, 2026-12-01) or a span (36h, 3d) to be done in");
  arguments.option("--max", words.most_usd, "dollars to spend at most: '$2000'");
  arguments.option(
      "--quota", words.quota,
      "what you may rent: output of `gcloud compute regions describe`, `aws service-quotas`, or lines");
  arguments.option("--only", words.only, "machines whose name, cloud or device has it: H100, gcp, p5");
  arguments.option("--region", words.region, "only this one");
  arguments.option("--tariff", words.tariff,
                   "on_demand, spot, one_year or three_years; default: the first two");
  arguments.option("--preemptions", words.preemptions, "of a spot machine in a day, as you expect them");
  arguments.option("--machines", words.machines, "at most so many of a kind (default 8)");
  arguments.option("--show", words.shown, "rows of the table (default 12)");
  arguments.flag("--choose", words.choose,
                 "also say which service: Vertex AI, GKE, Compute Engine or one workstation, and why");
  arguments.flag("--json", words.json, "print one JSON object");
  arguments.example("lockstep shop recipes/llama-8b.toml --tokens 20B --by friday --max '$2000'",
                    "cheapest and fastest that are in time and in the purse");
  arguments.example("lockstep shop recipes/llama-1b.toml --quota quota.json --only gcp",
                    "with what this project may rent");
  arguments.example("lockstep shop recipes/gpt2-124m.toml --choose", "which of Google's services to use");
  if (!arguments.parse()) return 0;
  const ShopOptions options = options_of(words);
  recipe::Resolved resolved = recipe::read_recipe(words.source);
  take_tokens(resolved, words.tokens);
  terminal::LiveLine line(stderr, terminal::terminal_of(STDERR_FILENO));
  const Offers offers = find_offers(resolved, options, [&](const std::string& what) { line.update(what); });
  line.finish();
  if (offers.list.empty()) {
    throw ConfigError(572, offers.refused.empty()
                               ? "no machine of the catalogue matches; `lockstep prices` lists all"
                               : fmt::format("no machine can run it; {}: {}", offers.refused[0].first,
                                             offers.refused[0].second));
  }
  std::vector<plan::Home> homes;
  const Offer* cheap = cheapest(offers);
  if (words.choose) homes = homes_for(cheap != nullptr ? *cheap : offers.list[0], resolved, options);
  words.json ? print_json(offers, homes) : print_offers(offers, words, homes);
  return cheap != nullptr ? 0 : 1;
}

}  // namespace lockstep::cli
