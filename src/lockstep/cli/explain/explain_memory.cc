// lockstep explain memory: what holds the memory of a step, and when.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/apply.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/explain/explain_plan.h"
#include "lockstep/cli/print.h"
#include "lockstep/run/session/forecast.h"
#include "lockstep/run/session/memory_report.h"
#include "lockstep/run/session/run_price.h"
#include "lockstep/terminal/curve.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

constexpr int kMostCompared = 64;  // ranks, each compiled again

std::string bytes_text(int64_t bytes) { return base::human_bytes(static_cast<double>(bytes)); }

// Bytes inside the step, by instruction.
std::vector<double> alive_bytes(const program::Program& program) {
  const std::vector<program::Lifetime> lives = program::lifetimes(program);
  std::vector<double> alive(program.instructions.size(), 0);
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    if (program.buffers[b].persistent) continue;
    for (int n = lives[b].first; n >= 0 && n <= lives[b].last; ++n) {
      alive[static_cast<size_t>(n)] += static_cast<double>(program.buffers[b].bytes());
    }
  }
  return alive;
}

// Every rank's, in order; empty for one rank, or for more than are worth compiling.
std::vector<program::MemoryPlan> memory_of_ranks(const run::Plan& plan) {
  std::vector<program::MemoryPlan> all;
  const int ranks = plan.seat.world;
  if (ranks == 1 || ranks > kMostCompared) return all;
  for (int rank = 0; rank < ranks; ++rank) {
    program::MemoryPlan memory;
    run::compile_for_rank(plan, rank, memory);
    all.push_back(memory);
  }
  return all;
}

void print_json(const run::Plan& plan) {
  nlohmann::json out{{"peak_bytes", plan.memory.peak_bytes()},
                     {"persistent_bytes", plan.memory.persistent_bytes},
                     {"transient_bytes", plan.memory.transient_bytes},
                     {"live_bytes", plan.memory.live_bytes},
                     {"host_bytes", plan.memory.host_bytes},
                     {"available_bytes", plan.available_bytes},
                     {"alive", alive_bytes(plan.program)},
                     {"rank", plan.seat.rank},
                     {"ranks", plan.seat.world}};
  for (const run::MemoryRow& row : run::memory_rows(plan)) {
    out["at_peak"].push_back({{"what", row.what}, {"bytes", row.bytes}});
  }
  for (const program::MemoryPlan& memory : memory_of_ranks(plan)) {
    out["by_rank"].push_back({{"peak_bytes", memory.peak_bytes()},
                              {"persistent_bytes", memory.persistent_bytes},
                              {"transient_bytes", memory.transient_bytes}});
  }
  print("{}\n", out.dump());
}

void print_peak(const run::Plan& plan, size_t width) {
  terminal::Table table({"at the peak", "bytes", "share"});
  table.align_right(1);
  table.align_right(2);
  const int64_t peak = plan.memory.peak_bytes();
  for (const run::MemoryRow& row : run::folded_memory_rows(plan)) {
    const double share = 100.0 * static_cast<double>(row.bytes) / static_cast<double>(peak);
    table.add({row.what, bytes_text(row.bytes), fmt::format("{:.1f} %", share)});
  }
  print("{}", table.to_text(width));
  const int at = plan.memory.peak_instruction;
  const program::Instruction& instruction = plan.program.instructions[static_cast<size_t>(at)];
  const auto placed = static_cast<double>(plan.memory.transient_bytes);
  const double gaps = placed > 0 ? 1 - static_cast<double>(plan.memory.live_bytes) / placed : 0;
  const std::string sentence = fmt::format(
      "peak {} at \"{}\" (instruction {}): {} persistent, {} per step ({:.1f} % of it gaps); {} available on "
      "{}",
      bytes_text(peak), program::title(plan.program, *plan.model, instruction), at,
      bytes_text(plan.memory.persistent_bytes), bytes_text(plan.memory.transient_bytes), 100 * gaps,
      bytes_text(plan.available_bytes), plan.device->id().to_string());
  print("\n{}\n", base::hanging(sentence, width, 2));
}

void print_host(const run::Plan& plan, size_t width) {
  if (plan.memory.host_bytes == 0) return;
  const std::string text =
      fmt::format("and {} of moments in host memory (optim.offload)", bytes_text(plan.memory.host_bytes));
  print("{}\n", base::hanging(text, width, 2));
}

// Neighbours that need the same are one row: most layouts have two or three kinds of ranks.
void print_ranks(const run::Plan& plan, size_t width) {
  const std::vector<program::MemoryPlan> all = memory_of_ranks(plan);
  if (all.empty()) return;
  terminal::Table table({"ranks", "persistent", "per step", "peak"});
  for (const size_t column : {1, 2, 3}) table.align_right(column);
  for (size_t first = 0; first < all.size();) {
    size_t last = first;
    while (last + 1 < all.size() && all[last + 1].persistent_bytes == all[first].persistent_bytes &&
           all[last + 1].transient_bytes == all[first].transient_bytes) {
      ++last;
    }
    table.add({first == last ? std::to_string(first) : fmt::format("{} to {}", first, last),
               bytes_text(all[first].persistent_bytes), bytes_text(all[first].transient_bytes),
               bytes_text(all[first].peak_bytes())});
    first = last + 1;
  }
  print("\n{}", table.to_text(width));
}

void print_curve(const run::Plan& plan, const terminal::Terminal& terminal) {
  std::vector<double> mib = alive_bytes(plan.program);
  for (double& bytes : mib) bytes /= 1 << 20;
  print("\n{}\n{}", base::hanging("live memory within the step, MiB, by instruction", terminal.width, 2),
        terminal::draw_curve(mib, {.width = std::min<size_t>(terminal.width, 76),
                                   .first = 0,
                                   .last = static_cast<int64_t>(mib.size()) - 1,
                                   .unicode = terminal.unicode}));
}

}  // namespace

int explain_memory(const std::vector<std::string>& words) {
  PlanWords wanted;
  int64_t apply = 0;
  Arguments arguments("explain memory", "Show what takes up the memory of a step, and when.", words);
  add_plan_words(arguments, wanted);
  arguments.flag("--json", wanted.json, "as JSON");
  arguments.option("--apply", apply,
                   "where it does not fit: write change N of the menu into the recipe file");
  arguments.example("lockstep explain memory first.toml", "on one rank, and how to reduce it");
  arguments.example("lockstep explain memory first.toml --nproc 8 parallel.zero=3",
                    "what each of 8 ranks would need");
  if (!arguments.parse()) return 0;
  const run::Plan plan = plan_for(wanted);
  if (wanted.json) {
    print_json(plan);
    return 0;
  }
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  print("{}", rank_line(plan));
  print_peak(plan, terminal.width);
  print_host(plan, terminal.width);
  print_ranks(plan, terminal.width);
  print_curve(plan, terminal);
  for (const run::Remedy& way : run::remedies(plan)) {
    const std::string row =
        fmt::format("{:<28} needs {:>10}: {}", way.change, bytes_text(way.peak_bytes), way.price);
    print("{}\n", base::hanging(row, terminal.width, 2));
  }
  if (plan.memory.peak_bytes() <= plan.available_bytes) {
    if (apply > 0) throw base::ConfigError(109, "--apply: it fits as it is, so there is nothing to apply");
    return 0;
  }
  const std::vector<run::MenuRow> menu =
      run::remedy_menu(plan, plan.available_bytes, run::this_place(plan).machine);
  print("\n{}\n",
        base::hanging(menu.empty() ? "does not fit, and no combination of changes helps" : "does not fit",
                      terminal.width, 2));
  const double usd_per_hour = run::known_price(plan.recipe(), plan.seat.nodes);
  if (!menu.empty())
    print("{}", menu_text(menu, {plan.recipe().run.steps, usd_per_hour / 3600}, terminal.width));
  if (apply > 0) apply_remedy(wanted.source, menu, apply);
  return 0;
}

}  // namespace lockstep::cli
