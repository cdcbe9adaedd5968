// lockstep doctor: is this machine fit to train? One row a fact, with the remedy where one is needed; --fix
// carries remedies out.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/device/checkup.h"
#include "lockstep/device/device.h"
#include "lockstep/jobs/client.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {
namespace {

using device::Finding;

// Text from the environment may hold any bytes; JSON takes only UTF-8.
std::string to_text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string json_of(const std::vector<Finding>& findings, bool fit) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    rows.push_back({{"subject", finding.subject},
                    {"verdict", device::name_of(finding.verdict)},
                    {"found", finding.found},
                    {"remedy", finding.remedy},
                    {"command", finding.command},
                    {"as_root", finding.as_root}});
  }
  return to_text({{"version", base::kVersion}, {"fit", fit}, {"findings", rows}});
}

// The verdict is painted after the table is laid out: colours have no width.
std::string table_of(const std::vector<Finding>& findings, const terminal::Terminal& terminal) {
  terminal::Table table({});
  for (const Finding& finding : findings) {
    const std::string remedy = finding.remedy.empty() ? "" : " -> " + finding.remedy;
    table.add({device::name_of(finding.verdict), finding.subject, finding.found + remedy});
  }
  std::string text = "\n" + table.to_text(terminal.width);
  const auto paint = [&](const std::string& word, terminal::Colour colour) {
    const std::string painted = terminal.paint(word, colour);
    for (size_t at = 0; (at = text.find("\n" + word + " ", at)) != std::string::npos; at += painted.size()) {
      text.replace(at + 1, word.size(), painted);
    }
  };
  paint("ok", terminal::Colour::green);
  paint("warn", terminal::Colour::yellow);
  paint("fail", terminal::Colour::red);
  return text.substr(1);
}

std::vector<Finding> look(const std::string& folder) {
  const device::MachineFacts facts = device::read_facts({.run_folder = folder});
  std::vector<Finding> findings = device::check_up(facts, device::cuda_availability());
  if (auto attention = device::check_attention(device::read_cuda_facts())) findings.push_back(*attention);
  return findings;
}

int64_t count(const std::vector<Finding>& findings, Finding::Verdict verdict) {
  return std::count_if(findings.begin(), findings.end(), [&](const auto& f) { return f.verdict == verdict; });
}

void show(const std::vector<Finding>& findings) {
  const int64_t failed = count(findings, Finding::Verdict::fail),
                warned = count(findings, Finding::Verdict::warn);
  print("{}\n{}\n", table_of(findings, terminal::terminal_of(STDOUT_FILENO)),
        failed   ? fmt::format("not ready to train: {} to fix first", failed)
        : warned ? fmt::format("ready to train; {} could be improved", warned)
                 : "ready to train");
}

bool agreed(const std::string& question) {
  print("{} [y/N] ", question);
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// One command after the other, each shown before it runs. False: one could not be carried out.
bool fix(const std::vector<Finding>& findings, bool yes) {
  bool all = true, any = false;
  for (const Finding& finding : findings) {
    if (finding.verdict == Finding::Verdict::ok) continue;
    if (finding.command.empty()) {
      print("{}: {} (by hand)\n", finding.subject, finding.remedy);
      continue;
    }
    any = true;
    if (finding.as_root && ::geteuid() != 0) {
      print("{}: needs root: sudo sh -c {}\n", finding.subject, jobs::shell_word(finding.command));
      all = false;
      continue;
    }
    print("{}: {}\n", finding.subject, finding.command);
    if (!yes && !agreed("  run this?")) continue;
    std::fflush(stdout);
    const int status = std::system(finding.command.c_str());
    const bool done = status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!done) print("  it failed; {}\n", finding.remedy);
    all = all && done;
  }
  if (!any) print("nothing here can be fixed by a command\n");
  print("\n");
  return all;
}

}  // namespace

int doctor_command(Arguments& arguments) {
  bool json = false, wants_fix = false, yes = false;
  std::string folder = "runs";
  arguments.flag("--json", json, "print the findings as JSON, with the command that fixes each");
  arguments.flag("--fix", wants_fix,
                 "run the command of each remedy that has one, after asking; then look again");
  arguments.flag("--yes", yes, "with --fix: do not ask");
  arguments.option("--run", folder, "the folder for run folders");
  arguments.example("lockstep doctor", "exit code 1 if something must be fixed before training");
  arguments.example("lockstep doctor --fix", "fix what can be fixed, one by one");
  if (!arguments.parse()) return 0;
  if (wants_fix && !yes && ::isatty(STDIN_FILENO) == 0)
    throw base::ConfigError(109,
                            "doctor --fix asks before each command, and nobody is here to answer: add --yes, "
                            "or see the commands with --json");

  std::vector<Finding> findings = look(folder);
  bool fixed = true;
  if (wants_fix) {
    fixed = fix(findings, yes);
    findings = look(folder);
  }
  if (json) {
    print("{}", json_of(findings, count(findings, Finding::Verdict::fail) == 0));
  } else {
    show(findings);
  }
  return count(findings, Finding::Verdict::fail) > 0 || !fixed ? 1 : 0;
}

}  // namespace lockstep::cli
