// lockstep plan --sweep: machines x counts x layouts, as a table, a chart and a CSV file.
#include "lockstep/cli/plan/sweep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/run/session/choose_layout.h"
#include "lockstep/terminal/live_line.h"
#include "lockstep/terminal/scatter.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {

namespace {

constexpr double kGib = 1 << 30;
constexpr size_t kShownLayouts = 3, kMostMarks = 26;
constexpr int kSearchTimes = 5;
constexpr int kMostNodes = 1 << 17;

// One layout on one place.
struct SweepRow {
  const plan::Place* place = nullptr;
  plan::Trial trial;
  double hours = 0, units_per_second = 0;
  std::optional<double> usd;
};

struct Swept {
  std::vector<SweepRow> rows;  // those that fit, the fastest first of each place
  std::vector<std::pair<const plan::Place*, std::string>> refused;  // places where nothing fits, and why
  size_t tried = 0;
  int64_t steps = 0;
  double units_per_step = 0;
  const char* unit = "tokens";
};

void sweep_place(const recipe::Resolved& resolved, const plan::Place& place, const Paying& paying,
                 Swept& swept) {
  try {
    const plan::Choice choice = run::layouts_on(resolved, place, true, kSearchTimes);
    swept.tried += choice.trials.size();
    // Everything that does not depend on the layout, from the best one's forecast.
    recipe::Resolved best = resolved;
    run::take_layout(best, choice.best);
    const run::Forecast f = run::forecast(best, place);
    swept.units_per_step = f.units_per_step, swept.unit = f.unit, swept.steps = f.steps;
    const auto price = place.price(paying.tariff, paying.region);
    for (const plan::Trial& trial : choice.trials) {
      if (!trial.fits) continue;
      SweepRow row{.place = &place, .trial = trial};
      row.hours = static_cast<double>(f.steps) * trial.step_seconds / 3600;
      row.units_per_second = f.units_per_step / trial.step_seconds;
      if (price) row.usd = price->usd_per_hour * row.hours;
      swept.rows.push_back(std::move(row));
    }
  } catch (const base::ConfigError& error) {
    swept.refused.emplace_back(&place, error.what());
  }
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string to_csv(const Swept& swept) {
  std::string text = fmt::format(
      "machines,ranks,nodes,layout,recompute,step_ms,{0}_per_s,{0}_per_s_per_rank,memory_gib,bubble,hours,"
      "usd\n",
      swept.unit);
  for (const SweepRow& row : swept.rows) {
    const plan::Trial& t = row.trial;
    text += fmt::format("{},{},{},{},{},{:.4f},{:.1f},{:.1f},{:.3f},{:.4f},{:.4f},{}\n",
                        csv_cell(row.place->words), row.place->ranks, row.place->nodes,
                        csv_cell(t.candidate.layout.words()), t.candidate.recompute, t.step_seconds * 1e3,
                        row.units_per_second, row.units_per_second / row.place->ranks,
                        static_cast<double>(t.peak_bytes) / kGib, t.bubble, row.hours,
                        row.usd ? fmt::format("{:.2f}", *row.usd) : "");
  }
  return text;
}

void print_json(const Swept& swept) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array(), refused = nlohmann::ordered_json::array();
  for (const SweepRow& row : swept.rows) {
    const plan::Trial& t = row.trial;
    rows.push_back({{"on", row.place->words},
                    {"ranks", row.place->ranks},
                    {"nodes", row.place->nodes},
                    {"layout", t.candidate.layout.words()},
                    {"recompute", t.candidate.recompute},
                    {"step_ms", t.step_seconds * 1e3},
                    {std::string(swept.unit) + "_per_s", row.units_per_second},
                    {"memory_gib", static_cast<double>(t.peak_bytes) / kGib},
                    {"bubble", t.bubble},
                    {"hours", row.hours},
                    {"usd", row.usd ? nlohmann::ordered_json(*row.usd) : nlohmann::ordered_json(nullptr)}});
  }
  for (const auto& [place, why] : swept.refused) refused.push_back({{"on", place->words}, {"why", why}});
  report_json(nlohmann::ordered_json{{"tried", swept.tried}, {"rows", rows}, {"refused", refused}});
}

void print_chart(const std::vector<const SweepRow*>& best, const terminal::Terminal& terminal) {
  const bool priced =
      std::all_of(best.begin(), best.end(), [](const SweepRow* r) { return r->usd.has_value(); });
  std::vector<terminal::Point> points;
  for (size_t k = 0; k < std::min(best.size(), kMostMarks); ++k)
    points.push_back(
        {best[k]->hours, priced ? *best[k]->usd : best[k]->units_per_second, static_cast<char>('a' + k)});
  if (points.size() < 2) return;
  print("\n{}, the best layout of each:\n{}", priced ? "cost against time" : "throughput against time",
        terminal::draw_points(
            points, {.width = std::min<size_t>(terminal.width, 76),
                     .x_text = [](double hours) { return base::human_duration(hours * 3600); },
                     .y_text = [&](double y) { return priced ? money(y) : base::human_count(y) + "/s"; }}));
}

// The best few of each place; each best one has a letter, by which the chart names it.
void print_table(const Swept& swept) {
  terminal::Table table(
      {"", "machines", "step", std::string(swept.unit) + "/s", "GiB", "time", "cost", "layout"});
  for (const size_t column : {2, 3, 4, 5, 6}) table.align_right(column);
  std::vector<const SweepRow*> best;
  size_t of_place = 0;
  for (const SweepRow& row : swept.rows) {
    const bool first = best.empty() || best.back()->place != row.place;
    of_place = first ? 1 : of_place + 1;
    if (first) best.push_back(&row);
    if (of_place > kShownLayouts) continue;
    const bool marked = first && best.size() <= kMostMarks;
    table.add({marked ? std::string(1, static_cast<char>('a' + best.size() - 1)) : "",
               first ? row.place->words : "", base::human_duration(row.trial.step_seconds),
               base::human_count(row.units_per_second),
               fmt::format("{:.1f}", static_cast<double>(row.trial.peak_bytes) / kGib),
               base::human_duration(row.hours * 3600), row.usd ? money(*row.usd) : "-",
               breakable(row.trial.candidate.words())});
  }
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  print("{}", table.to_text(terminal));
  for (const auto& [at, why] : swept.refused)
    print("{}\n", base::hanging(fmt::format("not {}: {}", at->words, why), terminal.width, 2));
  print_chart(best, terminal);
}

}  // namespace

std::vector<plan::Place> parse_places(const std::vector<std::string>& words) {
  std::vector<plan::Place> places;
  for (const std::string& word : words) {
    std::string rest = word;
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      const std::string one(base::trimmed(rest.substr(0, comma)));
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
      // "NAME x FIRST:LAST": counts, doubled.
      const size_t colon = one.rfind(':'), x = one.rfind('x');
      if (colon == std::string::npos || x == std::string::npos || x > colon) {
        places.push_back(plan::parse_place(one));
        continue;
      }
      const auto first = base::parse_number<int>(base::trimmed(one.substr(x + 1, colon - x - 1)));
      const auto last = base::parse_number<int>(base::trimmed(one.substr(colon + 1)));
      if (!first || !last || *first < 1 || *last < *first || *last > kMostNodes)
        throw base::ConfigError(
            571, fmt::format("{}: expected MACHINE x FIRST:LAST, such as \"a3-highgpu-8g x 1:32\"",
                             base::quoted(one)));
      const std::string name(base::trimmed(one.substr(0, x)));
      for (int64_t count = *first; count <= *last; count *= 2)
        places.push_back(plan::parse_place(fmt::format("{} x {}", count, name)));
    }
  }
  return places;
}

int plan_sweep(const recipe::Resolved& resolved, const SweepWords& words) {
  Swept swept;
  terminal::LiveLine line(stderr, terminal::terminal_of(STDERR_FILENO));
  for (const plan::Place& place : words.places) {
    line.update(fmt::format("trying layouts on {}", place.words));
    sweep_place(resolved, place, words.paying, swept);
  }
  line.finish();
  if (!words.out.empty()) base::write_file_durable(words.out, to_csv(swept));
  if (words.json) {
    print_json(swept);
  } else {
    print_table(swept);
    print("\n{} layouts tried, {} fit{}\n", swept.tried, swept.rows.size(),
          words.out.empty() ? "" : "; all that fit are in " + words.out);
  }
  return swept.rows.empty() ? 1 : 0;
}

}  // namespace lockstep::cli
