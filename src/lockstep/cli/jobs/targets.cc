// lockstep targets: the places there are; `check` tries them, --keys lists what can be set.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/jobs/submit.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

int print_keys(bool as_json) {
  json report = json::array();
  terminal::Table table({"key", "for", "meaning", "example"});
  for (const jobs::Setting& setting : jobs::settings()) {
    table.add(
        {setting.name, setting.kinds.empty() ? "all" : setting.kinds, setting.meaning, setting.example});
    report.push_back({{"key", setting.name},
                      {"kinds", setting.kinds},
                      {"meaning", setting.meaning},
                      {"example", setting.example}});
  }
  if (as_json) report_json(report, 2);
  if (!as_json) print("{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)));
  return 0;
}

struct Checked {
  bool ok = true;
  std::string what;
};

Checked try_place(const jobs::Place& place, jobs::Client& client) {
  const jobs::Target& target = jobs::find_target(place.kind);
  if (*target.client && !jobs::is_in_path(target.client))
    return {false, fmt::format("{} is not installed here, or not in PATH", target.client)};
  std::vector<std::string> passed;
  for (const jobs::Check& check : target.checks(place)) {
    const jobs::Answer answer = client.run(check.command);
    std::string problem;
    if (!answer.ok())
      problem = answer.complaint(check.command);
    else if (check.problem)
      problem = check.problem(place, answer);
    else if (base::trimmed(answer.output).empty())
      problem = fmt::format("`{}` finds nothing", jobs::shell_line(check.command.words));
    if (!problem.empty()) return {false, fmt::format("{}: {}", check.what, problem)};
    if (passed.empty() || passed.back() != check.what) passed.emplace_back(check.what);
  }
  return {true, fmt::format("ready ({})", base::join(passed, ", "))};
}

int check_places(const std::string& only, const std::vector<jobs::Place>& places, bool as_json) {
  std::vector<jobs::Place> wanted = places;
  if (!only.empty()) wanted = {jobs::find_place(only, places)};
  jobs::ProcessClient client;
  json report = json::array();
  bool all_ok = true;
  for (const jobs::Place& place : wanted) {
    Checked checked;
    try {
      checked = try_place(place, client);
    } catch (const base::ConfigError& error) {
      checked = {false, error.what()};
    }
    all_ok = all_ok && checked.ok;
    report.push_back(
        {{"target", place.name}, {"kind", place.kind}, {"ok", checked.ok}, {"what", checked.what}});
    if (!as_json) print("{} ({}): {}\n", place.name, place.kind, checked.what);
  }
  if (as_json) report_json(report, 2);
  if (!as_json && wanted.empty())
    print("{} has no targets yet; `lockstep targets check slurm` tries a kind\n", jobs::targets_file());
  return all_ok ? 0 : 1;
}

int list_places(const std::vector<jobs::Place>& places, bool as_json) {
  json report{{"file", jobs::targets_file()}, {"targets", json::array()}, {"kinds", json::array()}};
  terminal::Table named({"target", "kind", "machines"}), kinds({"kind", "client", "what it is"});
  for (const jobs::Place& place : places) {
    report["targets"].push_back(
        {{"name", place.name}, {"kind", place.kind}, {"nodes", place.nodes}, {"gpus", place.gpus}});
    named.add({place.name, place.kind, fmt::format("{} x {} GPUs", place.nodes, place.gpus)});
  }
  for (const jobs::Target& target : jobs::target_table()) {
    const bool here = !*target.client || jobs::is_in_path(target.client);
    report["kinds"].push_back({{"kind", target.kind},
                               {"client", target.client},
                               {"client_found", here},
                               {"summary", target.summary},
                               {"example", target.example}});
    kinds.add({target.kind,
               fmt::format("{}{}", *target.client ? target.client : "-", here ? "" : " (not here)"),
               target.summary});
  }
  if (as_json) {
    report_json(report, 2);
    return 0;
  }
  const terminal::Terminal terminal = terminal::terminal_of(STDOUT_FILENO);
  if (places.empty())
    print("{} does not exist or is empty; a kind works as a target, too\n\n", jobs::targets_file());
  if (!places.empty()) print("{}\n", named.to_text(terminal));
  print("{}", kinds.to_text(terminal));
  return 0;
}

}  // namespace

int targets_command(Arguments& arguments) {
  std::string verb, name;
  bool keys = false, as_json = false;
  arguments.positional("check", verb, "try each target: client, login, permissions, quota");
  arguments.positional("NAME", name, "only this one");
  arguments.flag("--keys", keys, "every key of targets.toml");
  arguments.flag("--json", as_json, "print as JSON");
  arguments.example("lockstep targets", "the targets of targets.toml, and the kinds there are");
  arguments.example("lockstep targets check lab", "can it be used from here?");
  arguments.example("lockstep targets --keys", "what targets.toml may say");
  if (!arguments.parse()) return 0;
  if (keys) return print_keys(as_json);
  const std::vector<jobs::Place> places = jobs::read_targets(jobs::targets_file());
  if (verb.empty()) return list_places(places, as_json);
  if (verb != "check")
    throw base::ConfigError(
        109,
        fmt::format("targets does not know {}; write `lockstep targets check [NAME]`", base::quoted(verb)));
  return check_places(name, places, as_json);
}

}  // namespace lockstep::cli
