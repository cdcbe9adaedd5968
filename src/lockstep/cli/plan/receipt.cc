// lockstep receipt: forecast against what happened, of one or many runs.
#include "lockstep/run/folder/receipt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/plan/report.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/see/receipt_parts.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {

namespace {

constexpr double kWorthARow = 0.001;  // of a step

void print_table(const std::vector<run::Receipt>& all) {
  terminal::Table table({"run", "forecast", "step", "error", "GiB forecast", "GiB", "error", "why"});
  for (const size_t column : {1, 2, 3, 4, 5, 6}) table.align_right(column);
  std::vector<double> errors;
  for (const run::Receipt& r : all) {
    errors.push_back(std::abs(r.step_error()));
    const bool memory = r.actual_memory_gib > 0;
    table.add({r.run, base::human_duration(r.predicted_step_ms / 1e3),
               base::human_duration(r.actual_step_ms / 1e3), fmt::format("{:+.1f} %", r.step_error() * 100),
               fmt::format("{:.3f}", r.predicted_memory_gib),
               memory ? fmt::format("{:.3f}", r.actual_memory_gib) : "-",
               memory ? fmt::format("{:+.1f} %", r.memory_error() * 100) : "-", r.why()});
  }
  print("{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)));
  std::sort(errors.begin(), errors.end());
  if (all.size() > 1)
    print("\nmedian error of the step {:.1f} %, largest {:.1f} %\n", errors[errors.size() / 2] * 100,
          errors.back() * 100);
}

std::string milliseconds(std::optional<double> ms) { return ms ? fmt::format("{:.1f}", *ms) : "-"; }

// Of one run: part by part, and what its machines cost meanwhile.
void print_parts(const run::Receipt& r, const std::vector<see::ReceiptPart>& parts) {
  terminal::Table table({"of a step", "forecast, ms", "actual", "difference"});
  for (const size_t column : {1, 2, 3}) table.align_right(column);
  for (const see::ReceiptPart& part : parts) {
    if (std::max(part.predicted_ms, part.actual_ms.value_or(0)) < kWorthARow * r.actual_step_ms) continue;
    table.add({part.name, milliseconds(part.predicted_ms), milliseconds(part.actual_ms),
               part.actual_ms ? fmt::format("{:+.1f}", *part.actual_ms - part.predicted_ms) : ""});
  }
  if (!parts.empty()) print("\n{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)));
  if (r.usd_per_hour > 0)
    print("\n{} steps: forecast {}, actual {}, at {}/h\n", r.steps, money(r.predicted_usd()),
          money(r.actual_usd()), money(r.usd_per_hour));
}

nlohmann::ordered_json to_json(const run::Receipt& r, const std::vector<see::ReceiptPart>& parts) {
  using nlohmann::ordered_json;
  ordered_json list = ordered_json::array();
  for (const see::ReceiptPart& part : parts)
    list.push_back({{"part", part.name},
                    {"predicted_ms", part.predicted_ms},
                    {"actual_ms", part.actual_ms ? ordered_json(*part.actual_ms) : ordered_json()}});
  const auto usd = [&](double value) { return r.usd_per_hour > 0 ? ordered_json(value) : ordered_json(); };
  return {{"run", r.run},
          {"machine", r.machine},
          {"measured", r.measured},
          {"steps", r.steps},
          {"predicted_step_ms", r.predicted_step_ms},
          {"actual_step_ms", r.actual_step_ms},
          {"parts", list},
          {"predicted_memory_gib", r.predicted_memory_gib},
          {"actual_memory_gib", r.actual_memory_gib},
          {"predicted_hours", r.predicted_hours},
          {"actual_hours", r.actual_hours},
          {"predicted_usd", usd(r.predicted_usd())},
          {"actual_usd", usd(r.actual_usd())},
          {"data_wait_ms", r.data_wait_ms},
          {"why", r.why()}};
}

}  // namespace

int receipt_command(Arguments& arguments) {
  std::vector<std::string> folders;
  bool json = false;
  arguments.rest("RUN", folders, "run folders, or names of runs in runs/");
  arguments.flag("--json", json, "print one JSON object per run");
  arguments.example("lockstep receipt runs/first",
                    "predicted and actual time and memory, and why they differ");
  arguments.example("lockstep receipt runs/* --json", "many runs, for a script");
  if (!arguments.parse()) return 0;
  if (folders.empty()) throw base::ConfigError(109, "receipt needs a run folder, such as runs/first");
  folders = run_folders_named(folders);
  std::vector<run::Receipt> all;
  for (const std::string& folder : folders) all.push_back(run::read_receipt(folder));
  if (json) {
    for (size_t k = 0; k < all.size(); ++k)
      report_json(to_json(all[k], see::receipt_parts(folders[k], all[k])));
    return 0;
  }
  print_table(all);
  if (all.size() == 1) print_parts(all[0], see::receipt_parts(folders[0], all[0]));
  return 0;
}

}  // namespace lockstep::cli
