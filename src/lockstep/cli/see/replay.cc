// lockstep replay: one step of a run again on one device, with a look at every block.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/replay/audit.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

using nlohmann::json;
using replay::Look;
using replay::Numbers;
using replay::Replayer;
using replay::SeenStep;

struct Options {
  std::string run, against;
  std::vector<std::string> words;
  int64_t step = 0;
  bool blocks = false, where = false, json = false;
  bool looks() const { return blocks || !against.empty(); }
};

// "60", "runs/second" or "runs/second:60".
struct Other {
  std::string run;
  int64_t step = 0;
};
Other other_of(const Options& options, const std::string& folder) {
  if (const auto step = base::parse_number(options.against)) return {folder, *step};
  const size_t colon = options.against.rfind(':');
  if (colon != std::string::npos) {
    if (const auto step = base::parse_number(options.against.substr(colon + 1)))
      return {wanted_run(options.against.substr(0, colon), "replay"), *step};
  }
  return {wanted_run(options.against, "replay"), options.step};
}

double usual_step_seconds(const std::string& folder) {
  see::RunLog log(folder);
  log.poll();
  const double ms = log.rows().last("step_ms");
  return std::isnan(ms) ? 0 : ms / 1e3;
}

std::string start_words(const replay::Start& start, int64_t step, double seconds) {
  const int64_t between = step - 1 - start.step;
  const std::string from = start.checkpoint.empty() && start.step == 0
                               ? "the run's beginning"
                               : fmt::format("the checkpoint of step {}", start.step);
  const std::string time = seconds > 0
                               ? fmt::format(", about {} at the run's pace",
                                             base::human_duration(seconds * static_cast<double>(between + 1)))
                               : "";
  return fmt::format("step {} from {}: {} step{} on the way{}", step, from, between, between == 1 ? "" : "s",
                     time);
}

json number_json(double value) { return std::isfinite(value) ? json(value) : json(fmt::format("{}", value)); }

json numbers_json(const Numbers& numbers) {
  return {{"count", numbers.count},
          {"nonfinite", numbers.nonfinite},
          {"rms", numbers.rms()},
          {"largest", numbers.largest},
          {"hash", fmt::format("{:016x}", numbers.hash)}};
}

json blocks_json(const SeenStep& seen) {
  json blocks = json::array();
  for (const replay::SeenBlock& one : seen.blocks) {
    blocks.push_back({{"block", one.name},
                      {"out", numbers_json(one.out)},
                      {"gradient", numbers_json(one.gradient)},
                      {"weights_before", numbers_json(one.before)},
                      {"weights", numbers_json(one.after)},
                      {"update", numbers_json(one.update)}});
  }
  return blocks;
}

json nonfinite_json(const SeenStep& seen) {
  json all = json::array();
  for (const replay::SeenValue* one : replay::first_nonfinite(seen)) {
    all.push_back({{"slice", one->slice},
                   {"pass", one->pass},
                   {"block", one->block},
                   {"segment", one->segment},
                   {"value", one->value},
                   {"nonfinite", one->numbers.nonfinite},
                   {"of", one->numbers.count}});
  }
  return all;
}

void print_blocks(const SeenStep& seen, const terminal::Terminal& screen) {
  terminal::Table table(
      {"block", "output rms", "largest", "gradient norm", "weights rms", "update / weights"});
  for (size_t column = 1; column < 6; ++column) table.align_right(column);
  for (const replay::SeenBlock& one : seen.blocks) {
    const double change = one.before.norm() > 0 ? one.update.norm() / one.before.norm() : 0;
    const bool gives = one.out.count > 0;  // the last block gives the loss
    table.add({one.name, gives ? fmt::format("{:.4g}", one.out.rms()) : "",
               gives ? fmt::format("{:.4g}", one.out.largest) : "",
               fmt::format("{:.4g}", one.gradient.norm()), fmt::format("{:.4g}", one.after.rms()),
               fmt::format("{:.2e}", change)});
  }
  print("\n{}", table.to_text(screen));
}

void print_nonfinite(const SeenStep& seen) {
  for (const replay::SeenValue* one : replay::first_nonfinite(seen)) {
    print("slice {}: first not finite in {} ({}), {} pass: {} of {} values of {}\n", one->slice, one->block,
          one->segment, one->pass, one->numbers.nonfinite, one->numbers.count, one->value);
  }
}

// What is known before a step is computed: conditions that are other than the run's.
json remarks_of(Replayer& replayer) {
  json remarks = json::array();
  for (const std::string& change : replayer.changes()) remarks.push_back("bits may differ: " + change);
  if (!replayer.inexact().empty()) remarks.push_back(replayer.inexact());
  return remarks;
}

void report_difference(const Other& other, const replay::Difference& difference, json& out, bool as_json) {
  out["against"] = {{"run", other.run},
                    {"step", other.step},
                    {"same", difference.same},
                    {"first_difference", difference.first},
                    {"blocks", difference.blocks}};
  if (as_json) return;
  print("\nagainst step {} of {}: {}\n", other.step, other.run,
        difference.same ? "the same, bit for bit" : "first different is " + difference.first);
  if (!difference.blocks.empty()) print("blocks that differ: {}\n", base::join(difference.blocks, ", "));
}

int compare_with_log(const replay::Logged& logged, const SeenStep& seen, json& out, bool as_json) {
  const std::string loss_hex = fmt::format("{:a}", seen.loss);
  const bool loss = logged.loss_hex.empty() || logged.loss_hex == loss_hex;
  const bool hash = logged.params_hash.empty() || logged.params_hash == seen.params_hash;
  const bool known = !logged.loss_hex.empty();
  out["logged"] = {{"loss_hex", logged.loss_hex}, {"params_hash", logged.params_hash}};
  out["same"] = known ? json(loss && hash) : json(nullptr);
  if (!as_json)
    print("{}\n", !known                       ? "the run has not logged this step: nothing to compare with"
                  : !(loss && hash)            ? "NOT the bits that the run logged"
                  : logged.params_hash.empty() ? "the loss has the bits that the run logged "
                                                 "(log.fingerprint=true would have logged the weights' hash)"
                                               : "the same bits as the run logged: loss and weights");
  return loss && hash ? 0 : 1;
}

int replay_step(const Options& options, const std::string& folder) {
  // Before anything is computed: it may be misspelled.
  const Other other = options.against.empty() ? Other{} : other_of(options, folder);
  Replayer replayer(folder, options.words, [](const std::string& line) { remark("{}\n", line); });
  const replay::Start start = replayer.nearest(options.step);
  json out{{"run", folder},
           {"step", options.step},
           {"from", start.step},
           {"steps_on_the_way", options.step - 1 - start.step}};
  const std::string words = start_words(start, options.step, usual_step_seconds(folder));
  if (options.where) {
    options.json ? report_json(out) : print("{}\n", words);
    return 0;
  }
  remark("{}\n", words);
  const auto logged = replay::logged_steps(folder);
  const auto line = logged.find(options.step);
  const replay::Logged said = line == logged.end() ? replay::Logged{} : line->second;
  const bool hunts =
      said.loss_hex.find("nan") != std::string::npos || said.loss_hex.find("inf") != std::string::npos;
  const SeenStep seen = replayer.step(options.step, options.looks() || hunts ? Look::blocks : Look::result);
  const json remarks = remarks_of(replayer);
  out["loss"] = number_json(seen.loss), out["loss_hex"] = fmt::format("{:a}", seen.loss);
  out["grad_norm"] = number_json(seen.grad_norm), out["params_hash"] = seen.params_hash;
  out["applied"] = seen.applied, out["remarks"] = remarks;
  const terminal::Terminal screen = terminal::terminal_of(STDOUT_FILENO);
  if (!options.json) {
    print("step {}: loss {:.6f}, gradient norm {:.4g}, params_hash {}{}\n", seen.step, seen.loss,
          seen.grad_norm, seen.params_hash, seen.applied ? "" : ", update not applied");
    for (const json& one : remarks) print("{}\n", base::hanging(one.get<std::string>(), screen.width, 2));
  }
  int code = compare_with_log(said, seen, out, options.json);
  if (options.looks() || hunts) out["blocks"] = blocks_json(seen), out["nonfinite"] = nonfinite_json(seen);
  if (!options.json && options.blocks) print_blocks(seen, screen);
  if (!options.json) print_nonfinite(seen);
  if (!options.against.empty()) {
    Replayer second(other.run, options.words, nullptr);
    report_difference(other, replay::difference_of(seen, second.step(other.step, Look::blocks)), out,
                      options.json);
  }
  if (options.json) report_json(out);
  if (code != 0)
    throw base::RunError(
        349, fmt::format("step {} of {} gave other bits than the run logged: loss {} instead of {}",
                         options.step, folder, fmt::format("{:a}", seen.loss), said.loss_hex));
  return code;
}

}  // namespace

int replay_command(Arguments& arguments) {
  Options options;
  arguments.positional("RUN", options.run, "a run folder, or the name of a run in runs/");
  arguments.rest("KEY=VALUE", options.words,
                 "keys that change no bit, such as run.device=cpu or run.threads=4");
  arguments.option("--step", options.step, "the step, counted from 1");
  arguments.flag("--blocks", options.blocks,
                 "print what every block computed: outputs, gradients, weights, updates");
  arguments.option("--against", options.against,
                   "a step, a run, or RUN:STEP, computed too: says which block differs first");
  arguments.flag("--where", options.where, "only say how far away the nearest start is");
  arguments.flag("--json", options.json,
                 "print JSON: loss_hex, params_hash, and every block's numbers if asked for");
  arguments.example("lockstep replay runs/first --step 57",
                    "from the nearest checkpoint, with the same bits");
  arguments.example("lockstep replay runs/first --step 57 --blocks", "where gradients are large");
  arguments.example("lockstep replay runs/first --step 57 --against runs/second", "what differs first");
  if (!arguments.parse()) return 0;
  if (options.run.empty() || options.step == 0)
    throw base::ConfigError(109, "replay needs a run and a step: lockstep replay runs/first --step 57");
  return replay_step(options, wanted_run(options.run, "replay"));
}

}  // namespace lockstep::cli
