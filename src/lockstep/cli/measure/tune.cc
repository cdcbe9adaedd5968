// lockstep tune: which slice size and recomputation train fastest here.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/measure/tune_ranks.h"
#include "lockstep/cli/print.h"
#include "lockstep/run/tools/tune.h"
#include "lockstep/terminal/live_line.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

constexpr int64_t kMostRanks = 1024;

bool asks_for_ranks(const recipe::Recipe& recipe) {
  const std::vector<std::string> differing = recipe::differing_keys(recipe, recipe::Recipe());
  return std::any_of(differing.begin(), differing.end(),
                     [](const std::string& key) { return key.starts_with("parallel."); });
}

// A word as a shell takes it back.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+/=:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// A name for the tuned run, where the recipe's own has a folder already: that one goes on with its own keys.
std::string free_name(const recipe::Recipe& recipe) {
  const auto taken = [&](const std::string& name) {
    std::error_code error;
    return std::filesystem::exists(recipe.log.folder + "/" + name, error);
  };
  if (!taken(recipe.run.name)) return "";
  std::string name = recipe.run.name + "-tuned";
  for (int n = 2; taken(name); ++n) name = fmt::format("{}-tuned-{}", recipe.run.name, n);
  return name;
}

// The whole command line, to be pasted.
std::string command_for(const run::Trial& trial, const recipe::RecipeSource& source, const std::string& name,
                        int64_t ranks) {
  std::vector<std::string> words{"lockstep", "train"};
  if (!source.file.empty()) words.push_back(source.file);
  words.insert(words.end(), source.overrides.begin(), source.overrides.end());
  if (!trial.same_bits) {
    words.push_back(fmt::format("batch.slices={}", trial.slices));
    words.push_back(fmt::format("batch.strands={}", trial.strands));
  }
  words.push_back("memory.recompute=" + trial.recompute);
  if (!name.empty()) words.push_back("run.name=" + name);
  if (ranks > 1) words.insert(words.end(), {"--nproc", std::to_string(ranks)});
  for (std::string& word : words) word = shell_word(word);
  return base::join(words, " ");
}

std::string ranks_text(int64_t strands) {
  return strands == 1 ? "one data rank" : fmt::format("1 to {} data ranks", strands);
}

// What the user gets, and what it is paid with.
std::string changes_of(const run::Trial& trial, const run::Trial& own) {
  if (trial.same_bits) return "same bits";
  const auto count = [](int64_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string text = fmt::format("different bits: {} in {} instead of {} in {}", count(trial.slices, "slice"),
                                 count(trial.strands, "strand"), own.slices, own.strands);
  if (trial.strands != own.strands)
    text += fmt::format("; for {} instead of {}", ranks_text(trial.strands), ranks_text(own.strands));
  return text;
}

void print_advice(const std::vector<run::Trial>& trials, const recipe::RecipeSource& source,
                  const recipe::Recipe& recipe, int64_t ranks) {
  const auto own = std::find_if(trials.begin(), trials.end(), [](const auto& t) { return t.own; });
  const auto same = std::find_if(trials.begin(), trials.end(), [](const auto& t) { return t.same_bits; });
  if (trials.empty() || !trials[0].fits) {
    print("\nnothing fits: `lockstep explain memory` shows what takes up the memory\n");
    return;
  }
  if (trials[0].own) {
    print("\nthe recipe's own setting is the fastest\n");
    return;
  }
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  const std::string name = free_name(recipe);
  const auto advise = [&](const char* title, const run::Trial& trial) {
    std::string gain;
    if (own != trials.end() && own->fits)
      gain = fmt::format(", {:.2f} times as fast as the recipe's own setting", own->step_ms / trial.step_ms);
    print("\n{}{}\n  {}\n{}\n", terminal.paint(title, terminal::Colour::bold), gain,
          command_for(trial, source, name, ranks),
          base::hanging("  " + changes_of(trial, own != trials.end() ? *own : trial), terminal.width, 2));
  };
  advise("the fastest", trials[0]);
  if (!trials[0].same_bits && same != trials.end() && same->fits && !same->own)
    advise("the fastest with the same bits", *same);
}

}  // namespace

int tune_command(Arguments& arguments) {
  recipe::RecipeSource source;
  run::TuneOptions options;
  int64_t ranks = 1;
  bool json = false;
  arguments.recipe(source);
  arguments.option("--steps", options.steps, "timed steps per trial");
  arguments.option("--nproc,--nproc-per-node", ranks,
                   "ranks of this machine, in the recipe's layout (default 1)");
  arguments.flag("--json", json, "print the rows as JSON");
  arguments.example("lockstep tune first.toml", "every slice size that fits, with and without recomputation");
  arguments.example("lockstep tune first.toml --nproc 4", "on four ranks, in the recipe's layout");
  if (!arguments.parse()) return 0;
  if (ranks < 1 || ranks > kMostRanks)
    throw base::ConfigError(109, fmt::format("--nproc {}: expected 1 to {}", ranks, kMostRanks));
  const terminal::Terminal terminal = terminal::terminal_of(STDERR_FILENO);
  terminal::LiveLine line(stderr, terminal);
  const recipe::Resolved resolved = recipe::read_recipe(source);
  const auto say = [&](const std::string& what) { line.update(what); };
  const std::vector<run::Trial> trials =
      ranks > 1 ? tune_on_ranks(resolved, static_cast<int>(ranks), options.steps, say)
                : run::tune(resolved, options, say);
  line.finish();
  if (ranks == 1 && asks_for_ranks(resolved.recipe))
    remark("timed on one rank: the [parallel] keys are ignored\n");
  if (json) {
    nlohmann::json out = nlohmann::json::array();
    for (const run::Trial& t : trials) {
      out.push_back({{"slices", t.slices},
                     {"strands", t.strands},
                     {"same_bits", t.same_bits},
                     {"own", t.own},
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
  terminal::Table table({"batch.slices", "batch.strands", "samples per slice", "memory.recompute", "memory",
                         "step", "tokens/s", ""});
  for (const size_t column : {0, 1, 2, 4, 5, 6}) table.align_right(column);
  for (size_t k = 0; k < trials.size(); ++k) {
    const run::Trial& t = trials[k];
    table.add({std::to_string(t.slices), std::to_string(t.strands), std::to_string(t.samples), t.recompute,
               base::human_bytes(static_cast<double>(t.peak_bytes)),
               t.fits ? base::human_duration(t.step_ms / 1e3) : "-",
               t.fits ? base::human_count(t.tokens_per_s) : "does not fit", t.own ? "the recipe's own" : ""});
  }
  print("{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)));
  print_advice(trials, source, resolved.recipe, ranks);
  return 0;
}

}  // namespace lockstep::cli
