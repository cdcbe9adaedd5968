// lockstep plan --published: forecasts beside figures that others have measured.
#include "lockstep/plan/catalogue/published.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/cli/plan/modes.h"
#include "lockstep/cli/plan/report.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/run/session/forecast.h"
#include "lockstep/terminal/live_line.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {

namespace {

struct Compared {
  const plan::PublishedRow& row;
  run::Forecast forecast;
  double tokens_per_second() const { return forecast.units_per_second() / row.place.ranks; }
  double error() const { return tokens_per_second() / row.tokens_per_second - 1; }
};

double median_error(const std::vector<Compared>& all) {
  std::vector<double> errors;
  for (const Compared& one : all) errors.push_back(std::abs(one.error()));
  std::sort(errors.begin(), errors.end());
  const size_t middle = errors.size() / 2;
  return errors.size() % 2 == 1 ? errors[middle] : (errors[middle - 1] + errors[middle]) / 2;
}

// Rows name their source by its number; the list of them stands below.
void print_table(const std::vector<Compared>& all, const plan::Published& published) {
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  terminal::Table table({"published", "on", "tokens/s/GPU", "forecast", "error", "", "layout"});
  for (const size_t column : {2, 3, 4, 5}) table.align_right(column);
  std::vector<std::string> sources;
  for (const Compared& one : all) {
    const auto known = std::find(sources.begin(), sources.end(), one.row.source.where);
    const auto number = static_cast<size_t>(known - sources.begin()) + 1;
    if (known == sources.end()) sources.push_back(one.row.source.where);
    table.add({one.row.title, one.row.place.words, fmt::format("{:.0f}", one.row.tokens_per_second),
               fmt::format("{:.0f}", one.tokens_per_second()), fmt::format("{:+.1f} %", one.error() * 100),
               fmt::format("[{}]", number), breakable(one.forecast.layout)});
  }
  const auto say = [&](const std::string& text) { print("{}\n", base::hanging(text, terminal.width, 4)); };
  print("{}\nmedian error {:.1f} % of {} rows\n\n", table.to_text(terminal), median_error(all) * 100,
        all.size());
  for (size_t k = 0; k < sources.size(); ++k) say(fmt::format("[{}] {}", k + 1, sources[k]));
  print("\nleft out:\n");
  for (const plan::LeftOut& one : published.left_out) say(fmt::format("  {}: {}", one.title, one.why));
}

}  // namespace

int plan_published(bool json) {
  const plan::Published published = plan::published();
  terminal::LiveLine line(stderr, terminal::terminal_of(STDERR_FILENO));
  std::vector<Compared> all;
  for (const plan::PublishedRow& row : published.rows) {
    line.update(fmt::format("{} on {}", row.title, row.place.words));
    recipe::RecipeSource source{.file = "", .overrides = row.keys};
    all.push_back({row, run::forecast(recipe::read_recipe(source), row.place)});
  }
  line.finish();
  if (!json) {
    print_table(all, published);
    return 0;
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Compared& one : all) {
    rows.push_back({{"title", one.row.title},
                    {"on", one.row.place.words},
                    {"layout", one.forecast.layout},
                    {"published_tokens_per_s", one.row.tokens_per_second},
                    {"tokens_per_s", one.tokens_per_second()},
                    {"error", one.error()},
                    {"memory_gib", static_cast<double>(one.forecast.peak_bytes) / (1 << 30)},
                    {"source", one.row.source.where}});
  }
  report_json(nlohmann::ordered_json{{"median_error", median_error(all)}, {"rows", rows}});
  return 0;
}

}  // namespace lockstep::cli
