#include "lockstep/training/decide.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/audit.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/older.h"
#include "lockstep/checkpoint/remote.h"
#include "lockstep/data/kind.h"
#include "lockstep/launch/process/rank_memory.h"
#include "lockstep/model/modules/module_file.h"
#include "lockstep/run/session/choose_layout.h"
#include "lockstep/run/session/load.h"
#include "lockstep/training/recovery.h"
#include "lockstep/training/uploader.h"

namespace lockstep::training {

namespace {

checkpoint::Say remarks_to(TrainObserver& observer) {
  return [&observer](const std::string& line) { observer.remark(line); };
}

void take_folder(const Request& request, FirstRank& own) {
  if (own.only_looks || own.files) return;
  const auto holder = launch::under_launcher() ? run::Holder::rank : run::Holder::alone;
  own.files = std::make_unique<run::RunFolder>(request.folder, holder);
}

// Where `resume` never or PATH goes on from, the first that can be used; empty: from the beginning.
std::vector<std::string> starting_points(const Request& request) {
  std::vector<std::string> points = saved_since_launch(request.folder);
  if (request.options.resume == "never") return points;
  const std::string resume = checkpoint::local_model(request.options.resume);
  if (!std::filesystem::exists(resume)) {
    throw checkpoint::CheckpointError(323, "--resume " + resume + ": no such checkpoint folder");
  }
  for (std::string& one : checkpoint::folders_to_read(resume, remarks_to(request.observer)))
    points.push_back(std::move(one));
  return points;
}

// A run is done when its last checkpoint can be used, to the last byte.
bool is_done(run::OwnCheckpoints& own, int64_t steps, TrainObserver& observer) {
  while (own.step > 0 && own.step >= steps) {
    try {
      checkpoint::audit(checkpoint::Opened(own.folders.front()));
      return true;
    } catch (const base::Error& error) {
      if (!checkpoint::is_unusable(error)) throw;
      observer.remark(error.what());
      own.drop_newest();
      if (!own.folders.empty()) observer.remark("using the previous one: " + own.folders.front());
    }
  }
  return false;
}

// What `resume` auto goes on from, unless the run is done.
void take_own_newest(const Request& request, run::Decision& decision) {
  const std::string& folder = request.folder;
  run::refuse_changes(decision.resolved, folder);
  run::OwnCheckpoints own = run::checkpoints_of(folder, decision.resolved);
  const int64_t steps = decision.resolved.recipe.run.steps;
  decision.done = is_done(own, steps, request.observer);
  // One that was lost behind its last save, as it evaluated, resumes without a step left.
  if (own.step == steps && !run::tells_its_end(folder, steps)) decision.done = false;
  decision.step = own.step;
  decision.checkpoints = own.folders;
  if (decision.done) return;
  for (const std::string& line : base::split_lines(own.passed_over)) request.observer.remark(line);
  const int damaged = checkpoint::name_damaged(folder, own.folders, remarks_to(request.observer));
  // A run that has saved does not start over as if it had not, whatever has become of its checkpoints.
  if (own.folders.empty() && own.passed_over.empty() && (damaged > 0 || run::has_saved(folder))) {
    decision.lost = folder +
                    " has no usable checkpoint left: restore one, choose another with --resume PATH, or "
                    "start over with --resume never";
  }
  if (own.folders.empty() && !own.passed_over.empty()) {
    throw base::ConfigError(160, folder +
                                     " contains only checkpoints of other recipes: resume from one with "
                                     "--resume PATH, or start over with --resume never");
  }
}

// A disk that lacks what the store of checkpoint.to has, as on a new machine, gets it.
void restore_run(const Request& request, FirstRank& own) {
  const std::string& from = request.said.recipe.checkpoint.to;
  if (from.empty() || own.only_looks || only_saves()) return;
  take_folder(request, own);
  const Restored restored = restore_from_store({.from = from,
                                                .run_folder = request.folder,
                                                .name = request.said.recipe.run.name,
                                                .starts_over = !request.automatic(),
                                                .remark = remarks_to(request.observer)});
  own.store_owner = restored.owner;
  if (restored.step)
    request.observer.remark(fmt::format("fetched the checkpoint of step {} from {}", *restored.step, from));
}

// A mistake in the recipe itself comes first. One that is sound alone may contradict what "auto" meant in
// this folder: then the changed keys are what the user must hear of.
run::Plan plan_to_go_on(const Request& request, const recipe::Resolved& said,
                        const recipe::Resolved& resolved, const run::PlanOptions& options) {
  try {
    return run::make_plan(resolved, request.own(), options);
  } catch (const base::ConfigError&) {
    recipe::Resolved alone = said;
    run::choose_layout(alone, options, request.own());
    const run::Plan sound = run::make_plan(alone, request.own(), options);
    run::refuse_said_changes(said, sound.resolved, request.folder);
    throw;
  }
}

}  // namespace

run::Decision decide(const Request& request, const run::PlanOptions& options, FirstRank& own) {
  // What another run is still writing is not looked at; a folder that is not there yet is made once the
  // recipe is known to be good. The other ranks wait for what is decided here before they touch the folder.
  const std::string& folder = request.folder;
  std::error_code nothing_there;
  if (std::filesystem::is_directory(folder, nothing_there)) take_folder(request, own);
  recipe::Resolved resolved = request.said;
  if (!request.options.data) data::resolve_kind(resolved);
  restore_run(request, own);
  const recipe::Resolved said = resolved;
  const run::Earlier earlier = request.starts_over() ? run::Earlier{} : run::look_at(folder);
  if (!earlier.damage.empty()) request.observer.remark(earlier.damage);
  if (!request.starts_over()) run::adopt_earlier(resolved, folder);
  const std::string& from = resolved.recipe.model.from;
  if (earlier.checkpoint.empty() && !from.empty() && !model::is_module_file(from))
    static_cast<void>(checkpoint::folders_to_read(from, remarks_to(request.observer)));
  if (const std::string why = run::choose_layout(resolved, options, request.own()); !why.empty())
    request.observer.remark(why);
  base::end_lap(options.laps, "look at the run folder");
  run::Plan plan = request.automatic() ? plan_to_go_on(request, said, resolved, options)
                                       : run::make_plan(resolved, request.own(), options);
  if (options.seat.world > 1) run::check_ranks(plan);
  run::Decision decision;
  decision.resolved = plan.resolved;
  if (request.automatic()) {
    take_own_newest(request, decision);
  } else {
    decision.checkpoints = starting_points(request);
  }
  if (!decision.done) take_folder(request, own);
  own.plan = std::move(plan);
  return decision;
}

TrainResult recorded_result(const std::string& folder, const std::vector<std::string>& checkpoints) {
  TrainResult result;
  result.folder = folder;
  if (checkpoints.empty()) return result;
  const checkpoint::Manifest manifest = checkpoint::read_manifest(checkpoints.front());
  result.steps = manifest.step;
  result.params_hash = manifest.params_hash;
  const run::RecordedEnd end = run::recorded_end(folder, result.steps);
  result.loss = end.loss;
  result.last_loss = end.last_loss;
  result.eval_loss = end.eval_loss;
  return result;
}

int64_t load_first(run::Session& session, const std::vector<std::string>& checkpoints,
                   TrainObserver& observer) {
  for (size_t k = 0; k < checkpoints.size(); ++k) {
    try {
      return run::load_checkpoint(session, checkpoints[k]);
    } catch (const base::Error& error) {
      if (!checkpoint::is_unusable(error)) throw;
      if (k + 1 == checkpoints.size()) {
        checkpoint::offer_older(checkpoints[k], remarks_to(observer));
        throw;
      }
      observer.remark(error.what());
      observer.remark("trying the previous one: " + checkpoints[k + 1]);
    }
  }
  return 0;
}

}  // namespace lockstep::training
