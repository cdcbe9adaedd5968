// lockstep tune: which slice size and recomputation train fastest here.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/live_line.h"
#include "lockstep/base/table.h"
#include "lockstep/base/terminal.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/run/tune.h"

namespace lockstep::cli {

namespace {

bool asks_for_ranks(const base::Recipe& recipe) {
  const std::vector<std::string> differing = base::differing_keys(recipe, base::Recipe());
  return std::any_of(differing.begin(), differing.end(),
                     [](const std::string& key) { return key.starts_with("parallel."); });
}

}  // namespace

int tune_command(Arguments& arguments) {
  base::RecipeSource source;
  run::TuneOptions options;
  bool json = false;
  arguments.recipe(source);
  arguments.option("--steps", options.steps, "timed steps for each trial");
  arguments.flag("--json", json, "print the rows as JSON");
  arguments.example("lockstep tune first.toml", "every slice size that fits, with and without recomputation");
  if (!arguments.parse()) return 0;
  const base::Terminal terminal = base::terminal_of(STDERR_FILENO);
  base::LiveLine line(stderr, terminal);
  const base::Resolved resolved = base::read_recipe(source);
  const std::vector<run::Trial> trials =
      run::tune(resolved, options, [&](const std::string& what) { line.update(what); });
  line.finish();
  if (asks_for_ranks(resolved.recipe)) remark("timed on one rank: the [parallel] keys play no part here\n");
  if (json) {
    nlohmann::json out = nlohmann::json::array();
    for (const run::Trial& t : trials) {
      out.push_back({{"slices", t.slices},
                     {"samples", t.samples},
                     {"recompute", t.recompute},
                     {"fits", t.fits},
                     {"peak_bytes", t.peak_bytes},
                     {"step_ms", t.step_ms},
                     {"tokens_per_s", t.tokens_per_s}});
    }
    print("{}\n", out.dump());
    return 0;
  }
  base::Table table(
      {"batch.slices", "samples a slice", "memory.recompute", "memory", "step", "tokens/s", ""});
  for (const size_t column : {0, 1, 3, 4, 5}) table.align_right(column);
  for (size_t k = 0; k < trials.size(); ++k) {
    const run::Trial& t = trials[k];
    table.add({std::to_string(t.slices), std::to_string(t.samples), t.recompute,
               base::human_bytes(static_cast<double>(t.peak_bytes)),
               t.fits ? base::human_duration(t.step_ms / 1e3) : "-",
               t.fits ? base::human_count(t.tokens_per_s) : "does not fit",
               k == 0 && t.fits ? "fastest" : ""});
  }
  print("{}", table.to_text(base::terminal_of(STDOUT_FILENO).width));
  if (!trials.empty() && trials[0].fits) {
    print("\nuse it: batch.slices={} memory.recompute={}\n", trials[0].slices, trials[0].recompute);
  }
  return 0;
}

}  // namespace lockstep::cli
