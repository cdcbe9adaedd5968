// lockstep verify: trains a small version of a recipe in many layouts and compares them with one rank.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/terminal/live_line.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"
#include "lockstep/training/stop_signal.h"
#include "lockstep/verify/child.h"

namespace lockstep::cli {

namespace {

using verify::Report;
using verify::Row;

constexpr size_t kWholeNames = 200;  // columns in a pipe: one line a layout

struct VerifyArguments {
  recipe::RecipeSource source;
  std::string layouts, against, keep;
  int64_t ranks = 4, steps = 4, jobs = 0;
  bool json = false;
};

std::string difference_text(double value, bool same_bits) {
  if (same_bits) return "bitwise";
  return std::isfinite(value) ? fmt::format("{:.1e}", value) : "not finite";
}

std::string yes_no(const std::optional<bool>& value) { return !value ? "-" : *value ? "yes" : "NO"; }

std::string verdict_of(const Row& row) { return row.holds ? "ok" : row.refused ? "refused" : "FAILED"; }

void print_table(const Report& report) {
  terminal::Table table({"layout", "ranks", "loss", "gradients", "memory", "again", "resumed", "verdict"});
  for (const size_t column : {1, 2, 3, 4}) table.align_right(column);
  for (const Row& row : report.rows) {
    const bool one = &row == &report.rows.front();
    const auto& d = row.difference;
    const bool bits = d && d->same_bits;
    table.add({one ? "one rank" : row.words(), std::to_string(row.layout.ranks()),
               one || !d ? "-" : difference_text(d->loss, bits),
               one || !d ? "-" : difference_text(d->gradient, bits),
               d ? base::human_bytes(row.memory_gib * (1 << 30)) : "-", yes_no(row.repeats),
               yes_no(row.resumes), verdict_of(row)});
  }
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  print("{}", terminal.is_tty ? table.to_text(terminal) : table.to_text(kWholeNames));
}

// Why rows do not hold, layouts with the same reason together.
void print_notes(const Report& report) {
  std::vector<std::pair<std::string, std::vector<std::string>>> notes;
  for (const Row& row : report.rows) {
    if (row.note.empty()) continue;
    const auto same =
        std::find_if(notes.begin(), notes.end(), [&](const auto& note) { return note.first == row.note; });
    const std::string name = &row == &report.rows.front() ? "one rank" : row.words();
    if (same == notes.end()) {
      notes.push_back({row.note, {name}});
    } else {
      same->second.push_back(name);
    }
  }
  for (const auto& [note, layouts] : notes) print("\n{}\n  {}\n", base::join(layouts, "  "), note);
}

void print_text(const VerifyArguments& wanted, const Report& report) {
  const recipe::Recipe& small = report.small.recipe;
  print("{}, {} layer{}, {}; {} step{} of {} slices{}{}\n", small.model.family, small.model.layers,
        small.model.layers == 1 ? "" : "s", small.precision.compute, small.run.steps,
        small.run.steps == 1 ? "" : "s", small.batch.slices.value,
        report.small.changes.empty() ? "" : "; scaled down: ", base::join(report.small.changes, ", "));
  print_table(report);
  print_notes(report);
  if (report.golden) {
    const auto& d = *report.golden;
    print("\ngolden run in {}: loss {}, gradients {}: {}{}\n", wanted.against,
          difference_text(d.loss, d.same_bits), difference_text(d.gradient, d.same_bits),
          d.same_bits ? "ok" : "FAILED; ", report.golden_note);
  }
  size_t held = 0, refused = 0;
  for (const Row& row : report.rows) {
    held += row.holds ? 1 : 0;
    refused += row.refused ? 1 : 0;
  }
  print(
      "\n{} of {} pass{}; layouts that split sums{} may differ by {:.0e} in loss and {:.0e} in gradients, "
      "all others must match bit for bit\n",
      held, report.rows.size(), refused > 0 ? fmt::format(", {} refused", refused) : "",
      small.run.exact ? "" : " or, with run.exact = false, have data ranks", report.tolerance.loss,
      report.tolerance.gradient);
}

// JSON knows no infinity: what is not finite is null.
nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

nlohmann::json difference_json(const verify::Difference& d) {
  nlohmann::json out{{"bitwise", d.same_bits}, {"loss", number(d.loss)}, {"gradients", number(d.gradient)}};
  for (const auto& [name, apart] : d.by_tensor) out["by_tensor"][name] = number(apart);
  if (d.blame) {
    out["first_block"] = {{"index", d.blame->block},
                          {"name", d.blame->block_name},
                          {"tensor", d.blame->tensor},
                          {"difference", number(d.blame->difference)},
                          {"blocks", d.blame->blocks}};
  }
  return out;
}

void print_json(const Report& report) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : report.rows) {
    nlohmann::json out = row.difference ? difference_json(*row.difference) : nlohmann::json::object();
    out["layout"] = row.words();
    out["ranks"] = row.layout.ranks();
    out["memory_gib"] = row.memory_gib;
    out["verdict"] = row.holds ? "ok" : row.refused ? "refused" : "failed";
    if (row.repeats) out["again"] = *row.repeats;
    if (row.resumes) out["resumed"] = *row.resumes;
    if (!row.note.empty()) out["note"] = row.note;
    rows.push_back(std::move(out));
  }
  nlohmann::json out{
      {"holds", report.holds},
      {"rows", rows},
      {"compute", report.small.recipe.precision.compute},
      {"tolerance", {{"loss", report.tolerance.loss}, {"gradients", report.tolerance.gradient}}}};
  if (report.golden) out["golden"] = difference_json(*report.golden);
  print("{}\n", out.dump());
}

void check_range(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  throw base::ConfigError(109,
                          fmt::format("{} {}: expected an integer from {} to {}", name, value, least, most));
}

}  // namespace

int verify_command(Arguments& arguments) {
  VerifyArguments wanted;
  arguments.recipe(wanted.source);
  arguments.option(
      "--layouts", wanted.layouts,
      "layouts, separated by spaces: \"data=4,zero=3 tensor=2,sequence pipeline=2,schedule=gpipe\"");
  arguments.option("--nproc,--nproc-per-node", wanted.ranks,
                   "without --layouts: the usual ones of up to this many ranks");
  arguments.option("--steps", wanted.steps, "steps per run");
  arguments.option("--jobs", wanted.jobs, "layouts run in parallel; default: number of cores, at most 4");
  arguments.flag("--json", wanted.json, "print the report as JSON");
  arguments.option("--against", wanted.against, "compare with the golden run in this folder");
  arguments.option("--keep", wanted.keep, "store the one-rank run in this folder as a golden run");
  arguments.example("lockstep verify first.toml", "the usual layouts of up to 4 ranks");
  arguments.example("lockstep verify first.toml --layouts \"data=2 data=2,zero=3\"", "these two");
  arguments.example("lockstep verify first.toml --keep golden", "later: --against golden");
  if (!arguments.parse()) return 0;
  check_range("--nproc", wanted.ranks, 1, 64);
  check_range("--steps", wanted.steps, 1, 1000);
  if (wanted.jobs == 0) wanted.jobs = std::min(device::thread_count(), 4);
  check_range("--jobs", wanted.jobs, 1, 64);
  if (!wanted.keep.empty()) verify::check_keeps(wanted.keep);
  if (!wanted.against.empty() && !std::filesystem::exists(wanted.against + "/recipe.toml")) {
    throw base::ConfigError(621, fmt::format("{} contains no golden run; --keep {} stores one there",
                                             wanted.against, wanted.against));
  }
  const bool named = !wanted.layouts.empty();
  const base::TemporaryFolder folder;
  const verify::Options options{
      .resolved = recipe::read_recipe(wanted.source),
      .layouts = named ? plan::parse_layouts(wanted.layouts) : plan::usual_layouts(wanted.ranks),
      .named = named,
      .steps = wanted.steps,
      .jobs = wanted.jobs,
      .folder = folder.path(),
      .against = wanted.against};
  const training::StopSignal signal;
  signal.arm();
  terminal::LiveLine line(stderr, terminal::terminal_of(STDERR_FILENO));
  const verify::Train train = verify::train_by(
      {.program = std::filesystem::read_symlink("/proc/self/exe").string(), .stop = &signal.value()});
  std::mutex mutex;  // of the line
  const Report report = verify::verify(options, [&](const verify::Job& job) {
    {
      const std::lock_guard lock(mutex);
      line.update("training " + job.title);
    }
    return train(job);
  });
  line.update(report.stopped ? "stopped" : "done");
  line.finish();
  if (!wanted.keep.empty() && report.rows[0].holds) verify::keep_golden(options.folder, wanted.keep);
  if (wanted.json) {
    print_json(report);
  } else {
    print_text(wanted, report);
  }
  if (report.stopped) {
    throw base::RunError(
        624, fmt::format("stopped after {} of {} layouts", report.rows.size() - 1, options.layouts.size()));
  }
  return report.holds ? 0 : 1;
}

}  // namespace lockstep::cli
