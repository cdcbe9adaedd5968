// lockstep doctor: is this machine fit to train? One row a fact, with the remedy where one is needed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/version.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/device/checkup.h"
#include "lockstep/device/device.h"
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
                    {"remedy", finding.remedy}});
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

}  // namespace

int doctor_command(Arguments& arguments) {
  bool json = false;
  std::string folder = "runs";
  arguments.flag("--json", json, "print the findings as JSON");
  arguments.option("--run", folder, "the folder for run folders");
  arguments.example("lockstep doctor", "exit code 1 if something must be fixed before training");
  if (!arguments.parse()) return 0;

  const device::MachineFacts facts = device::read_facts({.run_folder = folder});
  std::vector<Finding> findings = device::check_up(facts, device::cuda_availability());
  if (auto attention = device::check_attention(device::read_cuda_facts())) findings.push_back(*attention);
  const auto count = [&](Finding::Verdict verdict) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const auto& f) { return f.verdict == verdict; });
  };
  const auto failed = count(Finding::Verdict::fail), warned = count(Finding::Verdict::warn);
  if (json) {
    print("{}", json_of(findings, failed == 0));
  } else {
    print("{}\n{}\n", table_of(findings, terminal::terminal_of(STDOUT_FILENO)),
          failed   ? fmt::format("not ready to train: {} to fix first", failed)
          : warned ? fmt::format("ready to train; {} could be improved", warned)
                   : "ready to train");
  }
  return failed ? 1 : 0;
}

}  // namespace lockstep::cli
