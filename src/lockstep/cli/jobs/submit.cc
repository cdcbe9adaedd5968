// lockstep submit: a recipe, run somewhere else. --dry-run shows every file and every command.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/jobs/place_forecast.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/cli/spaced_keys.h"
#include "lockstep/jobs/submit.h"
#include "lockstep/run/session/rank_layout.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

struct Words {
  std::string to, after, sweep, launch;
  // Each sets the setting of its name; empty: not given.
  std::string nodes, gpus, nproc, time, image, program, folder, hosts;
  std::vector<std::string> set, variables, secrets, train;
  bool dry_run = false, as_json = false;
};

void declare(Arguments& arguments, Words& words, recipe::RecipeSource& source) {
  arguments.recipe(source);
  arguments.option("--to", words.to, "a table of targets.toml, or a kind: `lockstep targets` lists both");
  arguments.option("--nodes", words.nodes, "machines");
  arguments.option("--gpus", words.gpus, "GPUs on each machine");
  arguments.option("--nproc,--nproc-per-node", words.nproc,
                   "ranks on each machine; default: one per GPU, or one");
  arguments.option("--time", words.time,
                   "longest time the job may take: 90m, 24h, 1d12h; default: twice the forecast where the "
                   "catalogue has the "
                   "machine, otherwise the place's own");
  arguments.option("--hosts", words.hosts, "for ssh: HOST,USER@HOST:PORT,...");
  arguments.option("--image", words.image, "container image with lockstep in it");
  arguments.option("--program", words.program, "path of lockstep on those machines");
  arguments.option("--folder", words.folder, "working folder there, in which runs/ is");
  arguments.option("--env", words.variables, "NAME=value: a variable of the run");
  arguments.option("--secret", words.secrets,
                   "NAME=file:PATH, NAME=kubernetes:SECRET/KEY, NAME=google:SECRET, NAME=aws:SECRET or "
                   "NAME=azure:VAULT/SECRET: read where the run is");
  arguments.option("--set", words.set, "KEY=VALUE: any setting of the target (`lockstep targets --keys`)");
  arguments.option("--after", words.after, "start only after this job has ended well (Slurm)");
  arguments.option("--sweep", words.sweep, "one run per value, as an array (Slurm): --sweep=KEY=A,B,C");
  arguments.option(
      "--launch", words.launch,
      "a program of yours and its arguments instead of a recipe, run by `lockstep launch` there");
  arguments.option("--train", words.train,
                   "a word for `lockstep train` or `lockstep launch`: --train=--timing");
  arguments.flag("--dry-run", words.dry_run, "print every file and command; needs neither client nor login");
  arguments.flag("--json", words.as_json, "print as JSON");
  arguments.example("lockstep submit first.toml --to slurm --nodes 4 --gpus 8 --time 24h",
                    "four nodes of a Slurm cluster");
  arguments.example("lockstep submit first.toml --to lab optim.lr=1e-3",
                    "a place of targets.toml, one key changed");
  arguments.example("lockstep submit first.toml --to ssh --hosts gpu1,gpu2 --gpus 8",
                    "two machines that ssh reaches");
  arguments.example(
      "lockstep submit first.toml --to kubernetes --set form=jobset --image IMAGE --gpus 8 --dry-run",
      "only show the manifest");
  arguments.example("lockstep submit --launch \"train.py --epochs 10\" --to slurm --nodes 2 --gpus 4",
                    "a PyTorch script of your own, two nodes");
  arguments.example("lockstep submit first.toml --to slurm --sweep=optim.lr=1e-3,3e-4",
                    "two runs in a job array");
}

jobs::Place place_of(const Words& words) {
  if (words.to.empty())
    throw base::ConfigError(723, "submit needs a place: --to NAME; `lockstep targets` lists them");
  jobs::Place place = jobs::find_place(words.to, jobs::read_targets(jobs::targets_file()));
  const std::pair<const char*, const std::string&> flags[] = {
      {"nodes", words.nodes}, {"gpus", words.gpus},       {"ranks", words.nproc},   {"time", words.time},
      {"image", words.image}, {"program", words.program}, {"folder", words.folder}, {"hosts", words.hosts}};
  for (const auto& [key, value] : flags) {
    if (!value.empty())
      jobs::set(place, key, value, fmt::format("--{}", key == std::string("ranks") ? "nproc" : key));
  }
  for (const std::string& word : words.set) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || word.starts_with("kind="))
      throw base::ConfigError(
          720, fmt::format("--set {} is not KEY=VALUE; example: --set partition=gpu", base::quoted(word)));
    jobs::set(place, word.substr(0, equals), word.substr(equals + 1), "--set " + word.substr(0, equals));
  }
  place.environment.insert(place.environment.end(), words.variables.begin(), words.variables.end());
  place.secrets.insert(place.secrets.end(), words.secrets.begin(), words.secrets.end());
  if (!place.hosts.empty() && words.nodes.empty()) place.nodes = static_cast<int64_t>(place.hosts.size());
  return place;
}

// On shared file systems the run is where the user is, with the program the user has.
void fill_in(jobs::Place& place) {
  if (!jobs::find_target(place.kind).shares_files) return;
  std::error_code error;
  if (place.folder.empty()) place.folder = std::filesystem::current_path().string();
  if (place.program.empty() && place.image.empty())
    place.program = std::filesystem::read_symlink("/proc/self/exe", error).string();
}

jobs::Sweep sweep_of(const Words& words, const jobs::Place& place) {
  if (words.sweep.empty()) return {};
  const size_t equals = words.sweep.find('=');
  jobs::Sweep sweep{.key = words.sweep.substr(0, equals), .values = {}};
  std::string rest = equals == std::string::npos ? "" : words.sweep.substr(equals + 1);
  for (size_t comma = 0; comma != std::string::npos && !rest.empty();
       rest = rest.substr(comma == std::string::npos ? rest.size() : comma + 1)) {
    comma = rest.find(',');
    sweep.values.push_back(rest.substr(0, comma));
  }
  if (sweep.values.empty() || !recipe::find_key(sweep.key))
    throw base::ConfigError(
        722, fmt::format(
                 "--sweep {} is not KEY=A,B,C with a key of the recipe; example: --sweep=optim.lr=1e-3,3e-4",
                 base::quoted(words.sweep)));
  if (place.kind != "slurm")
    throw base::ConfigError(722, fmt::format("--sweep needs a target of kind slurm, not {}", place.kind));
  return sweep;
}

std::string after_of(const Words& words, const jobs::Place& place, const jobs::Ledger& ledger) {
  if (words.after.empty()) return "";
  const jobs::Submitted before = jobs::find_job(ledger, words.after);
  if (place.kind != "slurm" || before.place.kind != "slurm")
    throw base::ConfigError(722, "--after needs two jobs on targets of kind slurm");
  return before.id_of("Slurm job");
}

// How many ranks will start is known: a layout that they cannot have is refused now, not after a wait for
// machines.
void check_ranks(const jobs::Place& place, const recipe::Recipe& recipe) {
  if (recipe.parallel.automatic) return;
  int64_t ranks = 0;
  for (const jobs::Place& nodes : jobs::components_of(place)) ranks += nodes.nodes * jobs::ranks_of(nodes);
  static_cast<void>(run::rank_layout(recipe, {.world = static_cast<int>(ranks)}));
}

// What shall run: a recipe, checked here and not in a queue, or a program of the user's.
// Sentences: what the forecast has set.
std::vector<std::string> set_run(const Words& words, const recipe::RecipeSource& source, jobs::Job& job) {
  if (!words.launch.empty()) {
    if (!source.file.empty() || !source.overrides.empty() || !words.sweep.empty())
      throw base::ConfigError(722, "--launch runs a program of yours: leave recipe, keys and --sweep out");
    job.launch = jobs::split_shell_words(words.launch);
    job.name = std::filesystem::path(job.launch.front()).stem().string();
    jobs::check_line(job.name, "the program's name");
    return {};
  }
  refuse_spaced_keys(source.overrides);
  const recipe::Resolved resolved = recipe::read_recipe(source);
  check_ranks(job.place, resolved.recipe);
  job.name = resolved.recipe.run.name;
  if (!source.file.empty()) job.recipe = base::read_file(source.file);
  job.overrides = source.overrides;
  job.sweep = sweep_of(words, job.place);
  for (const std::string& value : job.sweep.values) {
    recipe::Recipe trial = resolved.recipe;
    recipe::set_value(trial, job.sweep.key, value);
  }
  return fill_from_forecast(job.place, resolved);
}

jobs::Job job_of(const Words& words, const recipe::RecipeSource& source, const jobs::Ledger& ledger,
                 std::vector<std::string>& remarks) {
  jobs::Job job;
  job.place = place_of(words);
  fill_in(job.place);
  jobs::check(job.place);
  jobs::check_line(ledger.folder(), "the folder of jobs");
  remarks = set_run(words, source, job);
  job.id = jobs::make_id(job.name);
  job.train = words.train;
  job.state_folder = ledger.folder() + "/" + job.id;
  job.after = after_of(words, job.place, ledger);
  return job;
}

json plan_json(const jobs::Job& job, const jobs::Plan& plan) {
  json out{{"id", job.id},           {"target", job.place.name},
           {"kind", job.place.kind}, {"folder", job.state_folder},
           {"files", json::array()}, {"commands", json::array()}};
  for (const jobs::File& file : plan.files)
    out["files"].push_back(
        {{"path", job.state_folder + "/" + file.name}, {"text", file.secret ? "" : file.text}});
  for (const jobs::Step& step : plan.steps) out["commands"].push_back(step.command.words);
  out["remarks"] = plan.remarks;
  return out;
}

void print_plan(const jobs::Job& job, const jobs::Plan& plan) {
  for (const jobs::File& file : plan.files)
    print("# ---- {}/{}\n{}\n", job.state_folder, file.name, file.secret ? "(a secret)\n" : file.text);
  print("# ---- commands\n");
  for (const jobs::Step& step : plan.steps) {
    std::string input;
    for (const jobs::File& file : plan.files) {
      if (!step.command.input.empty() && file.text == step.command.input)
        input = " <" + jobs::shell_word(job.state_folder + "/" + file.name);
    }
    if (!step.command.input.empty() && input.empty()) input = " <(the secret of this run)";
    print("{}{}\n", jobs::shell_line(step.command.words), input);
  }
  for (const std::string& line : plan.remarks) print("# {}\n", line);
}

}  // namespace

int submit_command(Arguments& arguments) {
  Words words;
  recipe::RecipeSource source;
  declare(arguments, words, source);
  if (!arguments.parse()) return 0;
  source.default_recipe = source.file.empty();
  jobs::Ledger ledger(jobs::jobs_folder());
  std::vector<std::string> remarks;
  const jobs::Job job = job_of(words, source, ledger, remarks);
  jobs::Plan plan = jobs::find_target(job.place.kind).plan(job);
  plan.remarks.insert(plan.remarks.begin(), remarks.begin(), remarks.end());
  json report = plan_json(job, plan);
  if (words.dry_run) {
    if (words.as_json) report_json(report, 2);
    if (!words.as_json) print_plan(job, plan);
    return 0;
  }
  jobs::ProcessClient client;
  const jobs::Submitted submitted = jobs::submit(
      job, plan, ledger, client, [](const std::string& line) { remark("lockstep: {}\n", line); });
  report["resources"] = json::array();
  for (const jobs::Resource& resource : submitted.resources)
    report["resources"].push_back({{"label", resource.label}, {"id", resource.id}});
  if (words.as_json) {
    report_json(report, 2);
    return 0;
  }
  print("submitted {} to {}", job.id, job.place.name);
  for (const jobs::Resource& resource : submitted.resources) print("; {} {}", resource.label, resource.id);
  print("\n  lockstep logs {0} -f    lockstep why {0}    lockstep stop {0}\n", job.id);
  for (const std::string& line : plan.remarks) print("  {}\n", line);
  return 0;
}

}  // namespace lockstep::cli
