// lockstep plan --scale: how throughput grows with the number of ranks, before any of them is rented.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/plan/modes.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/run/session/forecast.h"
#include "lockstep/terminal/live_line.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {

namespace {

struct Range {
  int first = 1, last = 1;
};

Range parse_range(const std::string& words) {
  const size_t colon = words.find(':');
  const auto first = base::parse_number<int>(words.substr(0, colon));
  const auto last = base::parse_number<int>(colon == std::string::npos ? words : words.substr(colon + 1));
  if (first && last && *first >= 1 && *last >= *first && *last <= 1 << 20) return {*first, *last};
  throw base::ConfigError(
      109, fmt::format("--scale {}: expected FIRST:LAST ranks, such as 1:4096", base::quoted(words)));
}

struct Scaled {
  int ranks = 1, nodes = 1;
  std::optional<run::Forecast> weak, strong;  // the batch grows with the ranks; it stays as it is
  std::string refused, strong_refused;        // why there is no weak one; no strong one
};

// The recipe's batch is that of the first.
recipe::Resolved with_batch(recipe::Resolved resolved, int times) {
  auto& batch = resolved.recipe.batch;
  batch.global *= times;
  if (!batch.slices.is_auto) batch.slices = batch.slices.value * times;
  if (!batch.strands.is_auto) batch.strands = batch.strands.value * times;
  return resolved;
}

std::optional<run::Forecast> attempt(const recipe::Resolved& resolved, const plan::Place& place,
                                     std::string& why) {
  try {
    return run::forecast(resolved, place);
  } catch (const base::ConfigError& error) {
    why = error.what();
    return std::nullopt;
  }
}

// What ranks wait for longest, if that is worth a word.
std::string waits_for(const run::Forecast& f) {
  for (const plan::TimePart& part : f.parts) {
    const bool waits = part.name.starts_with("exposed") || part.name == "pipeline bubble";
    if (waits && part.seconds > 0.02 * f.step_seconds)
      return fmt::format("{}, {:.0f} %", part.name, part.seconds / f.step_seconds * 100);
  }
  return "";
}

// Units per second and rank, as a share of the first's.
double efficiency(const run::Forecast& now, int ranks, const run::Forecast& first, int first_ranks) {
  return now.units_per_second() / ranks / (first.units_per_second() / first_ranks);
}

// Between which rows the efficiency falls most, if that is worth a word.
std::string bend(const std::vector<Scaled>& rows) {
  constexpr double kWorthAWord = 0.03;
  const Scaled& first = rows.front();
  double most = kWorthAWord;
  std::string found;
  for (size_t k = 1; k < rows.size(); ++k) {
    const Scaled &before = rows[k - 1], &now = rows[k];
    if (!first.weak || !before.weak || !now.weak) continue;
    const double from = efficiency(*before.weak, before.ranks, *first.weak, first.ranks),
                 to = efficiency(*now.weak, now.ranks, *first.weak, first.ranks);
    if (from - to <= most) continue;
    most = from - to;
    const std::string waits = waits_for(*now.weak);
    found =
        fmt::format("it bends most between {} and {} ranks, from {:.0f} to {:.0f} %{}{}", before.ranks,
                    now.ranks, from * 100, to * 100,
                    before.nodes == 1 && now.nodes > 1 ? ", where the network between machines begins" : "",
                    waits.empty() ? "" : "; then ranks wait: " + waits);
  }
  return found;
}

void print_table(const std::vector<Scaled>& rows) {
  terminal::Table table({"ranks", "weak step", "weak", "", "strong step", "strong", "what is waited for"});
  for (const size_t column : {0, 1, 2, 4, 5}) table.align_right(column);
  const Scaled& first = rows.front();
  for (const Scaled& row : rows) {
    std::vector<std::string> cells{std::to_string(row.ranks), "-", "-", "", "-", "-", row.refused};
    if (row.weak && first.weak) {
      const double share = efficiency(*row.weak, row.ranks, *first.weak, first.ranks);
      cells[1] = base::human_duration(row.weak->step_seconds);
      cells[2] = fmt::format("{:.0f} %", share * 100);
      cells[3] = std::string(static_cast<size_t>(std::clamp(share, 0.0, 1.0) * 20 + 0.5), '#');
      cells[6] = waits_for(*row.weak);
      if (!row.weak->fits()) cells[6] = cells[6].empty() ? "does not fit" : "does not fit; " + cells[6];
    }
    if (row.strong && first.strong) {
      cells[4] = base::human_duration(row.strong->step_seconds);
      cells[5] = fmt::format("{:.1f}x", first.strong->step_seconds / row.strong->step_seconds);
    }
    table.add(cells);
  }
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  print("{}\n", table.to_text(terminal));
  if (const std::string where = bend(rows); !where.empty())
    print("{}\n", base::hanging(where, terminal.width, 2));
  const auto ended = std::find_if(rows.begin(), rows.end(), [](const Scaled& row) { return !row.strong; });
  if (ended != rows.end() && ended->weak)
    print("{}\n", base::hanging(fmt::format("strong scaling ends before {} ranks: {}", ended->ranks,
                                            ended->strong_refused),
                                terminal.width, 2));
  print("{}\n",
        base::hanging("weak: the batch grows with the ranks, tokens per second and rank against the first "
                      "row; strong: the recipe's batch, times as fast as the first row",
                      terminal.width, 2));
}

// A part of one machine has its links and the whole of its price.
plan::Place so_many_of(const plan::Place& place, int ranks) {
  if (place.row == nullptr || ranks >= place.row->devices) return plan::with_ranks(place, ranks);
  plan::Place part = plan::with_ranks(place, 1);
  part.ranks = ranks;
  part.words = fmt::format("{} of {}", ranks, place.row->name);
  return part;
}

void print_json(const std::vector<Scaled>& rows) {
  for (const Scaled& row : rows) {
    nlohmann::ordered_json out{{"ranks", row.ranks}};
    const auto add = [&](const char* name, const std::optional<run::Forecast>& f) {
      out[name] = nullptr;
      if (f)
        out[name] = {{"step_ms", f->step_seconds * 1e3},
                     {"tokens_per_s", f->units_per_second()},
                     {"mfu", f->mfu},
                     {"fits", f->fits()}};
    };
    add("weak", row.weak);
    add("strong", row.strong);
    if (!row.refused.empty()) out["refused"] = row.refused;
    if (!row.strong_refused.empty()) out["strong_refused"] = row.strong_refused;
    report_json(out);
  }
}

}  // namespace

int plan_scale(const recipe::Resolved& resolved, const plan::Place& place, const std::string& range,
               bool json) {
  const Range wanted = parse_range(range);
  terminal::LiveLine line(stderr, terminal::terminal_of(STDERR_FILENO));
  std::vector<Scaled> rows;
  for (int64_t ranks = wanted.first; ranks <= wanted.last; ranks *= 2) {
    const plan::Place there = so_many_of(place, static_cast<int>(ranks));
    if (!rows.empty() && there.ranks == rows.back().ranks) continue;
    line.update(there.words);
    Scaled row{.ranks = there.ranks, .nodes = there.nodes};
    const int first = rows.empty() ? there.ranks : rows.front().ranks;
    row.weak = attempt(with_batch(resolved, there.ranks / first), there, row.refused);
    row.strong = attempt(resolved, there, row.strong_refused);
    rows.push_back(std::move(row));
  }
  line.finish();
  json ? print_json(rows) : print_table(rows);
  return 0;
}

}  // namespace lockstep::cli
