// lockstep explain program: the step program for a person.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/explain/explain_plan.h"
#include "lockstep/cli/print.h"
#include "lockstep/run/session/choose_layout.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

using base::human_bytes;
using base::human_count;
using program::Verb;

// Weights and gradients are counted only where an instruction goes through all of them.
int64_t bytes_of(const program::Program& program, const program::Instruction& i,
                 const std::vector<program::Use>& uses) {
  const Verb verb = program::verb_of(i.what);
  const bool whole = verb == Verb::sum || verb == Verb::norm || verb == Verb::update ||
                     verb == Verb::gather || verb == Verb::reduce;
  std::map<int, int64_t> once;
  for (const program::Use& use : uses) {
    const program::Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
    const bool flows = !buffer.persistent && buffer.kind != program::BufferKind::gradient &&
                       buffer.kind != program::BufferKind::workspace;
    if (whole || flows) once[use.buffer] = buffer.bytes();
  }
  int64_t total = 0;
  for (const auto& [buffer, bytes] : once) total += bytes;
  return total;
}

// A reduction goes through a bucket of blocks: "b2 b1".
std::string bucket_of(const program::Program& program, const program::Instruction& i) {
  std::vector<std::string> names;
  for (const program::Use& use : i.reads) {
    const program::Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
    const std::string name = fmt::format("b{}", buffer.block);
    const bool known = std::find(names.begin(), names.end(), name) != names.end();
    if (buffer.block >= 0 && buffer.kind == program::BufferKind::gradient && !known) names.push_back(name);
  }
  return base::join(names, " ");
}

// To what is there already.
bool adds(const program::Instruction& i) {
  const auto* run = i.get<program::RunSegment>();
  const auto* reduce = i.get<program::ReduceGradients>();
  return i.is<program::JoinStrands>() || (run != nullptr && run->accumulate) ||
         (reduce != nullptr && reduce->accumulate);
}

std::string notes_of(const program::Program& program, const program::Instruction& i) {
  std::vector<std::string> notes;
  const bool gradients = i.is<program::ReduceGradients, program::SumPartials>();
  const std::string bucket = gradients && i.block < 0 ? bucket_of(program, i) : "";
  if (!bucket.empty()) notes.push_back(bucket);
  if (i.is<program::AddTied>()) notes.push_back("adds tied gradient");
  if (adds(i)) notes.push_back("adds");
  if (i.is<program::Update>()) notes.push_back("if every gradient is finite");
  std::string waits;
  for (const int wait : i.waits) waits += fmt::format(" #{}", wait);
  if (!waits.empty()) notes.push_back("waits" + waits);
  return base::join(notes, "; ");
}

nlohmann::json instruction_json(const run::Plan& plan, const program::Instruction& i) {
  nlohmann::json row{{"op", program::name_of(program::verb_of(i.what))},
                     {"lane", program::name_of(i.lane)},
                     {"title", program::title(plan.program, *plan.model, i)},
                     {"flops", i.flops},
                     {"moved_bytes", i.moved_bytes}};
  if (i.block >= 0) row["block"] = i.block;
  if (i.slice >= 0) row["slice"] = i.slice;
  if (const auto* reduce = i.get<program::ReduceGradients>(); reduce != nullptr && reduce->round >= 0)
    row["round"] = reduce->round;
  if (const auto* partial = i.get<program::SumPartials>(); partial != nullptr && partial->round >= 0)
    row["round"] = partial->round;
  if (i.among != program::Among::none) row["among"] = program::name_of(i.among);
  if (!i.waits.empty()) row["waits"] = i.waits;
  if (i.runs(program::Pass::backward_weight) || i.runs(program::Pass::loss)) row["accumulate"] = adds(i);
  if (i.is<program::Update>()) row["predicate"] = "gradients finite";
  for (const auto& [name, uses] : {std::pair{"reads", &i.reads}, std::pair{"writes", &i.writes}}) {
    for (const program::Use& use : *uses)
      row[name].push_back({{"role", program::text_of(use)}, {"buffer", use.buffer}});
  }
  return row;
}

void print_json(const run::Plan& plan) {
  nlohmann::json out{{"slices", plan.program.slices},
                     {"strands", plan.program.strands},
                     {"rank", plan.seat.rank},
                     {"ranks", plan.seat.world},
                     {"own_slices", plan.program.own_slices},
                     {"peak_bytes", plan.memory.peak_bytes()}};
  const plan::Traffic sent = run::traffic_of(plan);
  out["sent_bytes"] = {{"inside_node", sent.inside}, {"to_other_nodes", sent.across}};
  for (const program::Instruction& i : plan.program.instructions)
    out["instructions"].push_back(instruction_json(plan, i));
  for (const program::Buffer& b : plan.program.buffers) {
    out["buffers"].push_back({{"name", b.name},
                              {"kind", program::name_of(b.kind)},
                              {"bytes", b.bytes()},
                              {"offset", b.offset},
                              {"persistent", b.persistent}});
  }
  print("{}\n", out.dump());
}

// Slices repeat the same list: what stands between the first and the last of this rank's is left out.
struct Gap {
  size_t begin = 0, end = 0;
};

Gap gap_between_slices(const program::Program& program) {
  const std::vector<int64_t>& own = program.own_slices;
  if (own.size() < 3) return {};
  Gap gap{0, program.instructions.size()};
  for (size_t n = 0; n < program.instructions.size(); ++n) {
    if (program.instructions[n].slice == own.front()) gap.begin = n + 1;
    if (program.instructions[n].slice == own.back()) gap.end = std::min(gap.end, n);
  }
  return gap;
}

void print_table(const run::Plan& plan, const Gap& gap) {
  const program::Program& program = plan.program;
  terminal::Table table({"#", "instruction", "lane", "reads", "writes", "FLOPs", "notes"});
  for (const size_t column : {0, 3, 4, 5}) table.align_right(column);
  for (size_t n = 0; n < program.instructions.size(); ++n) {
    if (n >= gap.begin && n < gap.end) {
      if (n == gap.begin)
        table.add({"", fmt::format("... {} more identical slices (--all)", program.own_slices.size() - 2)});
      continue;
    }
    const program::Instruction& i = program.instructions[n];
    table.add({std::to_string(n), program::title(program, *plan.model, i), program::name_of(i.lane),
               human_bytes(static_cast<double>(bytes_of(program, i, i.reads))),
               human_bytes(static_cast<double>(bytes_of(program, i, i.writes))),
               i.flops > 0 ? human_count(i.flops) : "", notes_of(program, i)});
  }
  print("{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)));
}

}  // namespace

int explain_program(const std::vector<std::string>& words) {
  PlanWords wanted;
  bool all = false;
  Arguments arguments("explain program", "Print the step program of a recipe, instruction by instruction.",
                      words);
  add_plan_words(arguments, wanted);
  arguments.flag("--all", all, "all slices, not just the first and the last");
  arguments.flag("--json", wanted.json, "the program as JSON: instructions and buffers");
  arguments.example("lockstep explain program first.toml", "one step on one rank");
  arguments.example("lockstep explain program first.toml --nproc 4 --rank 1 parallel.zero=3",
                    "what rank 1 of 4 would do: gathers, reductions, releases");
  arguments.example("lockstep explain program first.toml --nnodes 2 --nproc 4",
                    "two nodes: hierarchical reduction and inter-node traffic");
  if (!arguments.parse()) return 0;
  const run::Plan plan = plan_for(wanted);
  if (wanted.json) {
    print_json(plan);
    return 0;
  }
  print("{}", rank_line(plan));
  print_table(plan, all ? Gap{} : gap_between_slices(plan.program));
  double flops = 0;
  for (const program::Instruction& i : plan.program.instructions) flops += i.flops;
  const size_t width = terminal::terminal_of(STDOUT_FILENO).width;
  const auto say = [&](const std::string& text) { print("{}\n", base::hanging(text, width, 2)); };
  print("\n");
  say(fmt::format("{} instructions, {} FLOPs per step, peak memory {}", plan.program.instructions.size(),
                  human_count(flops), human_bytes(static_cast<double>(plan.memory.peak_bytes()))));
  if (plan.seat.world == 1) return 0;
  say(fmt::format("rank {} {}", plan.seat.rank, traffic_text(plan)));
  const size_t lists = run::check_ranks(plan);
  say(fmt::format(
      "checked: the {} ranks have {}; every send has its receive, collectives are in the same order "
      "everywhere",
      plan.seat.world, lists == 1 ? "one program" : fmt::format("{} different programs", lists)));
  return 0;
}

}  // namespace lockstep::cli
