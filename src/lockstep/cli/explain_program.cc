// lockstep explain program, lockstep explain memory: the step program for a person.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/curve.h"
#include "lockstep/base/table.h"
#include "lockstep/base/terminal.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/run/memory_report.h"

namespace lockstep::cli {

namespace {

using base::human_bytes;
using base::human_count;

struct Wanted {
  base::RecipeSource source;
  bool json = false, all = false;
};

run::Plan plan_for(const Wanted& wanted) { return run::make_plan(base::read_recipe(wanted.source), {}, {.must_fit = false}); }

// Weights and gradients are counted only where an instruction goes through all of them.
int64_t bytes_of(const program::Program& program, const program::Instruction& i, const std::vector<program::Use>& uses) {
  const bool whole = i.op == program::Op::sum || i.op == program::Op::norm || i.op == program::Op::update;
  std::map<int, int64_t> once;
  for (const program::Use& use : uses) {
    const program::Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
    if (whole || !buffer.persistent) once[use.buffer] = buffer.bytes();
  }
  int64_t total = 0;
  for (const auto& [buffer, bytes] : once) total += bytes;
  return total;
}

std::string waits_text(const program::Instruction& i) {
  std::string text;
  for (const int wait : i.waits) text += fmt::format(" #{}", wait);
  return text.empty() ? "" : "waits" + text;
}

nlohmann::json instruction_json(const run::Plan& plan, const program::Instruction& i) {
  nlohmann::json row{{"op", program::name_of(i.op)}, {"lane", program::name_of(i.lane)},
                     {"title", program::title(plan.program, *plan.model, i)}, {"flops", i.flops},
                     {"moved_bytes", i.moved_bytes}};
  if (i.block >= 0) row["block"] = i.block;
  if (i.slice >= 0) row["slice"] = i.slice;
  if (i.op == program::Op::backward_weight || i.op == program::Op::loss) row["accumulate"] = i.accumulate;
  if (i.predicated) row["predicate"] = "gradients finite";
  for (const auto& [name, uses] : {std::pair{"reads", &i.reads}, std::pair{"writes", &i.writes}}) {
    for (const program::Use& use : *uses) row[name].push_back({{"role", use.role}, {"buffer", use.buffer}});
  }
  return row;
}

void print_json(const run::Plan& plan) {
  nlohmann::json out{{"slices", plan.program.slices}, {"strands", plan.program.strands},
                     {"peak_bytes", plan.memory.peak_bytes()}};
  for (const program::Instruction& i : plan.program.instructions) out["instructions"].push_back(instruction_json(plan, i));
  for (const program::Buffer& b : plan.program.buffers) {
    out["buffers"].push_back({{"name", b.name}, {"kind", program::name_of(b.kind)}, {"bytes", b.bytes()}, {"offset", b.offset},
                              {"persistent", b.persistent}});
  }
  print("{}\n", out.dump());
}

// Slices repeat the same list; only the first and the last are shown unless all are asked for.
bool shown(const program::Program& program, const program::Instruction& i, bool all) {
  return all || i.slice < 0 || i.slice == 0 || i.slice == program.slices - 1;
}

}  // namespace

int explain_program(const std::vector<std::string>& words) {
  Wanted wanted;
  Arguments arguments("explain program", "Print the step program of a recipe, instruction by instruction.", words);
  arguments.recipe(wanted.source);
  arguments.flag("--all", wanted.all, "every slice, not only the first and the last");
  arguments.flag("--json", wanted.json, "the program as JSON: instructions and buffers");
  if (!arguments.parse()) return 0;
  const run::Plan plan = plan_for(wanted);
  if (wanted.json) {
    print_json(plan);
    return 0;
  }
  const program::Program& program = plan.program;
  base::Table table({"#", "instruction", "lane", "reads", "writes", "FLOPs", "notes"});
  for (const size_t column : {0, 3, 4, 5}) table.align_right(column);
  double flops = 0;
  bool skipped = false;
  for (size_t n = 0; n < program.instructions.size(); ++n) {
    const program::Instruction& i = program.instructions[n];
    flops += i.flops;
    if (!shown(program, i, wanted.all)) {
      if (!skipped) table.add({"", fmt::format("... slices 1 to {} alike (--all)", program.slices - 2)});
      skipped = true;
      continue;
    }
    const bool tied = i.op == program::Op::sum && i.reads[0].role == "tied";
    std::string notes = tied ? "adds the tied slot" : i.predicated ? "if every gradient is finite" : i.accumulate ? "adds" : waits_text(i);
    table.add({std::to_string(n), program::title(program, *plan.model, i), program::name_of(i.lane),
               human_bytes(static_cast<double>(bytes_of(program, i, i.reads))),
               human_bytes(static_cast<double>(bytes_of(program, i, i.writes))), i.flops > 0 ? human_count(i.flops) : "", notes});
  }
  print("{}", table.to_text(std::max<size_t>(base::terminal_of(STDOUT_FILENO).width, 100)));
  print("\n{} instructions, {} FLOPs a step, peak memory {}\n", program.instructions.size(), human_count(flops),
             human_bytes(static_cast<double>(plan.memory.peak_bytes())));
  return 0;
}

int explain_memory(const std::vector<std::string>& words) {
  Wanted wanted;
  Arguments arguments("explain memory", "Show what holds the memory of a step, and when.", words);
  arguments.recipe(wanted.source);
  arguments.flag("--json", wanted.json, "as JSON");
  if (!arguments.parse()) return 0;
  const run::Plan plan = plan_for(wanted);
  const std::vector<run::MemoryRow> rows = run::memory_rows(plan);
  const std::vector<program::Lifetime> lives = program::lifetimes(plan.program);
  std::vector<double> alive(plan.program.instructions.size(), 0);
  for (size_t b = 0; b < plan.program.buffers.size(); ++b) {
    for (int n = lives[b].first; n >= 0 && n <= lives[b].last && !plan.program.buffers[b].persistent; ++n) {
      alive[static_cast<size_t>(n)] += static_cast<double>(plan.program.buffers[b].bytes());
    }
  }
  if (wanted.json) {
    nlohmann::json out{{"peak_bytes", plan.memory.peak_bytes()}, {"persistent_bytes", plan.memory.persistent_bytes},
                       {"transient_bytes", plan.memory.transient_bytes}, {"available_bytes", plan.available_bytes},
                       {"alive", alive}};
    for (const run::MemoryRow& row : rows) out["at_peak"].push_back({{"what", row.what}, {"bytes", row.bytes}});
    print("{}\n", out.dump());
    return 0;
  }
  const base::Terminal terminal = base::terminal_of(STDOUT_FILENO);
  base::Table table({"at the peak", "bytes", "share"});
  table.align_right(1);
  table.align_right(2);
  const auto peak = static_cast<double>(plan.memory.peak_bytes());
  for (const run::MemoryRow& row : rows) {
    table.add({row.what, human_bytes(static_cast<double>(row.bytes)), fmt::format("{:.1f} %", 100.0 * static_cast<double>(row.bytes) / peak)});
  }
  print("{}", table.to_text(terminal.width));
  const program::Instruction& at = plan.program.instructions[static_cast<size_t>(plan.memory.peak_instruction)];
  print("\npeak {} at \"{}\" (instruction {}): {} kept across steps, {} inside the step; {} can be had on {}\n",
             human_bytes(peak), program::title(plan.program, *plan.model, at), plan.memory.peak_instruction,
             human_bytes(static_cast<double>(plan.memory.persistent_bytes)),
             human_bytes(static_cast<double>(plan.memory.transient_bytes)), human_bytes(static_cast<double>(plan.available_bytes)),
             plan.device->id().to_string());
  std::vector<double> mib;
  for (const double bytes : alive) mib.push_back(bytes / (1 << 20));
  print("\nalive inside the step, MiB, by instruction\n{}",
             base::draw_curve(mib, {.width = std::min<size_t>(terminal.width, 76), .first = 0,
                                    .last = static_cast<int64_t>(alive.size()) - 1, .unicode = terminal.unicode}));
  for (const run::Remedy& way : run::remedies(plan)) {
    print("{:<28} needs {:>10}: {}\n", way.change, human_bytes(static_cast<double>(way.peak_bytes)), way.price);
  }
  return 0;
}

}  // namespace lockstep::cli
