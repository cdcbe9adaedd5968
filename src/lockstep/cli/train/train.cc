// lockstep train: a recipe in, a run folder out. What it does is train() of the library; here are its words.
#include "lockstep/train.h"

#include <optional>

#include "lockstep/base/environment.h"
#include "lockstep/base/laps.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/launch/launch_flags.h"
#include "lockstep/cli/see/notify.h"
#include "lockstep/cli/see/report_progress.h"
#include "lockstep/cli/train/detach.h"
#include "lockstep/cli/train/train_profile.h"
#include "lockstep/cli/train/train_screen.h"
#include "lockstep/launch/process/rank_memory.h"
#include "lockstep/training/request.h"
#include "lockstep/training/stop_signal.h"

namespace lockstep::cli {

namespace {

// One of several processes that were started for the run; with a launcher of ours, that one.
bool speaks_for_run() {
  if (launch::under_launcher()) return false;
  for (const char* rank : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (base::environment(rank).value_or("0") != "0") return false;
  }
  return true;
}

}  // namespace

int train_command(Arguments& arguments) {
  // Before anything that takes time: 75, not 143.
  auto signal = std::make_optional<training::StopSignal>(training::only_saves());
  base::Laps laps("load the program and its libraries");
  recipe::RecipeSource source;
  TrainOptions options;
  TrainScreen::Options shown{.laps = laps};
  std::string profile, notify;
  bool detached = false;
  arguments.recipe(source);
  arguments.option("--run", options.folder, "the run folder; default: log.folder/run.name");
  arguments.option("--resume", options.resume,
                   "auto: resume the run in the folder; never: start over; or a checkpoint to resume from");
  arguments.option("--profile", profile,
                   "FIRST:LAST: profile these steps; writes trace/profile.json and prints a table");
  arguments.flag("--timing", shown.timing, "print a breakdown of the time until the end of the first step");
  arguments.flag("--quiet,-q", shown.quiet, "print only warnings and errors");
  arguments.flag("--dry-run", options.dry_run,
                 "validate everything and print the plan; start and write nothing");
  arguments.flag("--detach", detached,
                 "train in the background, beyond the terminal; returns after the first step");
  arguments.option(
      "--notify", notify,
      "tell the webhook (Slack's form) whose address is in env:NAME or file:PATH of failures, hangs, "
      "preemptions, loss spikes and the end");
  arguments.flag("--json", shown.json, "print the summary as JSON on standard output");
  add_launch_flags(arguments, options.launch, FlagsFor::training);
  arguments.example("lockstep train", "the default recipe: a small GPT on the built-in grammar");
  arguments.example("lockstep train first.toml optim.lr=1e-3 run.name=second",
                    "one key changed, in its own run folder");
  arguments.example("lockstep train first.toml --nproc 4", "four ranks on this machine; the same bits");
  arguments.example("lockstep train first.toml --nproc 8 parallel.zero=3",
                    "weights, gradients and moments sharded");
  arguments.example("lockstep train first.toml --detach", "in the background; `lockstep attach` shows it");
  arguments.example("lockstep train model.family=llama precision.compute=bf16 run.name=llama",
                    "another model");
  if (!arguments.parse()) return 0;
  options.profile = read_profile(profile);
  shown.dry_run = options.dry_run;
  const recipe::Resolved recipe = recipe::read_recipe(source);
  laps.end("read the recipe");
  const recipe::Recipe& said = recipe.recipe;
  const std::string folder = options.folder.empty() ? said.log.folder + "/" + said.run.name : options.folder;
  if (detached && !options.dry_run) {
    signal.reset();  // whoever stops waiting for its first step does not stop the run
    return detach(arguments.words(), folder, shown.json);
  }
  if (!notify.empty() && !options.dry_run && speaks_for_run()) start_notifier(notify, folder);
  ProgressReporter reporter;
  if (!options.dry_run && speaks_for_run()) reporter.start(folder);
  TrainScreen screen(shown);
  options.observer = &screen;
  options.laps = &laps;
  const TrainResult result = train(recipe, options);
  reporter.end();
  if (shown.json) print_result(result);
  return result.exit_code;
}

}  // namespace lockstep::cli
