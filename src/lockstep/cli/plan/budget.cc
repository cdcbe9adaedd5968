// lockstep budget: what runs have spent of run.budget, and the alert that a cloud keeps beside it.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/money.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/run/shared/budget.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {

namespace {

using base::ConfigError;

struct Spent {
  std::string run;
  run::Spending spending;
  double budget = 0;  // 0: none
};

Spent spent_by(const std::string& folder) {
  if (!std::filesystem::exists(folder + "/spending.json"))
    throw ConfigError(579,
                      fmt::format("{} has counted no money: it has no spending.json; train with run.budget",
                                  base::quoted(folder)));
  Spent spent{.run = folder, .spending = run::read_spending(folder)};
  const recipe::Recipe recipe = recipe::read_recipe({.file = folder + "/config.toml"}).recipe;
  spent.budget = base::parse_dollars(recipe.run.budget).value_or(0);
  return spent;
}

void print_spent(const std::vector<Spent>& all, bool json) {
  if (json) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const Spent& one : all)
      out.push_back({{"run", one.run},
                     {"usd", one.spending.usd},
                     {"budget_usd", one.budget},
                     {"hours", one.spending.seconds / 3600},
                     {"processes", one.spending.processes}});
    report_json(out);
    return;
  }
  terminal::Table table({"run", "spent", "of", "time", "processes"});
  for (const size_t column : {1, 2, 3, 4}) table.align_right(column);
  for (const Spent& one : all)
    table.add({one.run, base::dollars(one.spending.usd), one.budget > 0 ? base::dollars(one.budget) : "-",
               base::human_duration(one.spending.seconds), std::to_string(one.spending.processes)});
  print("{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)));
}

// A name in single quotes, whatever is in it.
std::string shell_quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The account, where it is not given, is asked of the project when the command runs.
std::string google_command(double usd, const std::string& name, const std::string& account,
                           std::string project) {
  project = project.empty() ? "\"$(gcloud config get-value project)\"" : shell_quoted(project);
  const std::string billing =
      account.empty()
          ? fmt::format(
                "\"$(gcloud billing projects describe {} --format='value(billingAccountName.basename())')\"",
                project)
          : shell_quoted(account);
  return fmt::format(
      "gcloud billing budgets create --billing-account={} --display-name={} --budget-amount={:.2f}USD "
      "--filter-projects=projects/{} --threshold-rule=percent=0.5 --threshold-rule=percent=0.9 "
      "--threshold-rule=percent=1.0",
      billing, shell_quoted(name), usd, project);
}

}  // namespace

int budget_command(Arguments& arguments) {
  std::vector<std::string> words;
  std::string amount, name, account, project;
  bool gcp = false, json = false;
  arguments.rest("RUN", words, "run folders, or names of runs in runs/; what each has spent");
  arguments.flag("--gcp", gcp, "print the command that makes an alert of Google Cloud, at 50, 90 and 100 %");
  arguments.option("--amount", amount, "with --gcp: dollars, such as '$50'");
  arguments.option("--name", name, "with --gcp: what the alert is called");
  arguments.option("--account", account, "with --gcp: the billing account; default: the project's");
  arguments.option("--project", project, "with --gcp: default: gcloud's");
  arguments.flag("--json", json, "print the rows as JSON");
  arguments.example("lockstep train first.toml run.budget='$50' run.price=12.5",
                    "stops, saved, before $50 are spent");
  arguments.example("lockstep budget runs/first", "what it has spent so far");
  arguments.example("lockstep budget --gcp --amount '$50'",
                    "the cloud's own alert, as a second pair of eyes");
  if (!arguments.parse()) return 0;
  if (gcp) {
    const auto usd = base::parse_dollars(amount);
    if (!usd || *usd <= 0)
      throw ConfigError(109, amount.empty() ? "budget --gcp needs --amount DOLLARS, such as --amount '$50'"
                                            : fmt::format("--amount {}: expected dollars, such as '$50'",
                                                          base::quoted(amount)));
    print("{}\n", google_command(*usd, name.empty() ? "Lockstep" : name, account, project));
    return 0;
  }
  if (words.empty()) throw ConfigError(109, "budget needs a run folder, or --gcp --amount DOLLARS");
  std::vector<Spent> all;
  for (const std::string& folder : run_folders_named(words)) all.push_back(spent_by(folder));
  print_spent(all, json);
  return 0;
}

}  // namespace lockstep::cli
