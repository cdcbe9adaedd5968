#include "lockstep/train.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/comm/engine.h"
#include "lockstep/launch/failure.h"
#include "lockstep/launch/rendezvous/kept_memory.h"
#include "lockstep/launch/schedulers/metadata_watch.h"
#include "lockstep/launch/start.h"
#include "lockstep/run/shared/preemption.h"
#include "lockstep/training/rank.h"
#include "lockstep/training/recovery.h"
#include "lockstep/training/remarks.h"
#include "lockstep/training/spending.h"
#include "lockstep/training/uploader.h"

namespace lockstep {

namespace {

using training::FirstRank;
using training::Request;
using training::StopSignal;

// What the process that finished the run did not get to.
void upload_what_is_left(const Request& request, const FirstRank& own) {
  const auto& when = request.said.recipe.checkpoint;
  if (when.to.empty() || request.options.dry_run) return;
  const auto step = training::newest_not_uploaded(when.to, request.folder);
  if (!step) return;
  training::Uploader uploads({.to = when.to,
                              .run_folder = request.folder,
                              .retention = {.keep = static_cast<int>(when.keep), .every = when.keep_every},
                              .owner = own.store_owner});
  uploads.saved(*step);
  if (const std::string left = uploads.finish(training::kUploadSeconds); !left.empty())
    throw base::IoError(344, fmt::format("step {} is saved in {}, but {}", *step, request.folder, left));
  if (const auto news = uploads.poll())
    request.observer.remark(fmt::format("step {}: {}", news->step, news->why));
}

TrainResult already_done(const Request& request, const run::Decision& decision, const FirstRank* first) {
  TrainResult result;
  if (first != nullptr) {
    request.observer.remark(
        fmt::format("already done: {} has {} steps. Set a larger run.steps to train longer, run.name=NAME to "
                    "start another run, or --resume never to start over",
                    request.folder, decision.step));
    upload_what_is_left(request, *first);
    result = training::recorded_result(request.folder, decision.checkpoints);
  }
  result.ended = TrainResult::Ended::already_done;
  result.first = first != nullptr;
  result.folder = request.folder;
  result.steps = decision.step;
  result.finished = true;
  return result;
}

// What the run would begin with, for the first of so many ranks, none of which is started.
TrainResult rehearse(const Request& request, const comm::Seat& seat) {
  run::PlanOptions options;
  options.seat = seat;
  options.node_shares_memory = comm::would_share_memory(request.said.recipe.parallel.engine);
  options.shares_memory = options.node_shares_memory && seat.nodes == 1;
  options.per_node = seat.nodes == 1 ? 0 : seat.local_world;
  FirstRank own{.only_looks = true};
  const run::Decision decision = training::decide(request, options, own);
  if (decision.done) return already_done(request, decision, &own);
  if (!decision.lost.empty()) throw checkpoint::CheckpointError(328, decision.lost);
  TrainResult result;
  result.ended = TrainResult::Ended::rehearsed;
  result.first = true;
  result.folder = request.folder;
  if (!decision.checkpoints.empty())
    result.steps = training::recorded_result(request.folder, decision.checkpoints).steps;
  training::say_planned({.plan = *own.plan, .folder = request.folder, .first_step = result.steps}, request);
  request.observer.note(fmt::format("dry run: nothing was started or written; the run would {} step {}",
                                    result.steps == 0 ? "start at" : "resume from",
                                    result.steps == 0 ? 1 : result.steps));
  return result;
}

// The launcher's verdict on a hang says more: it comes before the collectives' own timeout, unless another
// one was asked for. (A recipe from `lockstep init` names every key: one with its default value is no
// choice.)
std::chrono::seconds collective_timeout(const recipe::Recipe& recipe) {
  const int64_t timeout = recipe.parallel.timeout;
  const recipe::AutoInt& hang = recipe.run.hang_timeout;
  const bool chosen = timeout != recipe::Recipe().parallel.timeout;
  return std::chrono::seconds(chosen || hang.is_auto ? timeout : std::max(timeout, 2 * hang.value));
}

// As one of the ranks of `world`.
TrainResult train_in(comm::World& world, const Request& request, const StopSignal& signal) {
  const recipe::Recipe& said = request.said.recipe;
  base::Laps* laps = request.options.laps;
  world.use(said.parallel.engine, collective_timeout(said));
  run::compare_recipes(world, said);
  std::unique_ptr<run::Ranks> ranks;
  if (world.size() > 1) ranks = std::make_unique<run::Ranks>(world);
  run::PlanOptions options = ranks ? run::for_this(*ranks) : run::PlanOptions{};
  options.laps = laps;
  base::end_lap(laps, "rendezvous with the other ranks");
  FirstRank own;
  const run::Decision decision =
      run::decide_together(world, [&] { return training::decide(request, options, own); });
  if (decision.done) return already_done(request, decision, world.first() ? &own : nullptr);
  run::Plan plan = own.plan ? *std::exchange(own.plan, std::nullopt)
                            : run::make_plan(decision.resolved, request.own(), options);
  if (plan.recipe().run.exact) run::compare_records(world, plan);

  watch::Recorder recorder =
      training::only_saves() ? watch::Recorder(world.rank()) : watch::Recorder(request.folder, world.rank());
  if (!recorder.problem().empty()) request.observer.warn("nothing will be recorded: " + recorder.problem());
  base::end_lap(laps, "open the run folder");
  run::Session session(std::move(plan), ranks.get(), recorder.ring());
  recorder.describe(run::recorded_names(session));
  signal.arm();  // from here on there is something to save; a rank that still waits for others just ends
  const training::Rank rank{request,        session,  decision,
                            signal,         recorder, training::open_snapshots(session, request.observer),
                            own.store_owner};
  if (!request.automatic() && world.size() == 1) launch::forget_kept_memory(request.folder);
  // Ranks of a launcher hear of it from there.
  const auto metadata =
      world.size() > 1 ? nullptr : launch::MetadataWatch::here([&](const std::string& text) {
        request.observer.launcher("lockstep: " + text + "\n");
      });
  return own.files ? training::run_first(rank, *own.files) : training::run_beside(rank);
}

// What the launcher must know of the ranks that it starts.
launch::RankNeeds needs_of(const Request& request) {
  const recipe::Recipe& recipe = request.said.recipe;
  launch::RankNeeds needs;
  needs.fits = [&recipe](int ranks) { run::check_layout(recipe, ranks); };
  needs.one_by_default = recipe.run.device == "cpu" || recipe.run.device.starts_with("cuda:");
  needs.run_folder = request.folder;
  const recipe::AutoInt& hang = recipe.run.hang_timeout;
  if (!hang.is_auto) needs.hang_seconds = static_cast<double>(hang.value);
  needs.from_scratch = !request.automatic();
  needs.replicas = static_cast<int>(recipe.checkpoint.replicas);
  needs.notice_seconds = run::find_notice(recipe.checkpoint.notice, run::this_place()).seconds;
  return needs;
}

// The ranks have said how it went; a program that asks finds it here too.
TrainResult launched(const Request& request, int exit_code) {
  TrainResult result;
  try {
    result = training::recorded_result(request.folder, checkpoint::list(request.folder));
  } catch (const base::Error&) {  // of another version, or on another node: the exit code is what counts
  }
  result.ended = TrainResult::Ended::launched;
  result.folder = request.folder;
  result.exit_code = exit_code;
  result.finished = exit_code == 0;
  return result;
}

void check_profile(const TrainOptions::Steps& steps, int64_t run_steps) {
  if (steps.first <= run_steps) return;
  throw base::ConfigError(109, fmt::format("--profile {}:{} starts after the run's last step, run.steps = {}",
                                           steps.first, steps.last, run_steps));
}

TrainResult start_or_join(const Request& request, const StopSignal& signal) {
  const auto say = [&](const std::string& lines) { request.observer.launcher(lines); };
  std::optional<TrainResult> rehearsed;
  launch::RankNeeds needs = needs_of(request);
  if (request.options.dry_run) {
    needs.instead = [&](const comm::Seat& seat) {
      rehearsed = rehearse(request, seat);
      return rehearsed->exit_code;
    };
  }
  launch::Start start = launch::start(request.options.launch, request.folder + "/logs", say, needs);
  if (rehearsed) return *rehearsed;
  if (start.exit_code) {
    signal.arm();  // the ranks have ended: a stop signal that comes this late changes nothing
    return launched(request, *start.exit_code);
  }
  start.options.say = [&](const std::string& text) { say("lockstep: " + text + "\n"); };
  const auto world = start.store ? std::make_unique<comm::World>(start.options, std::move(start.store))
                                 : std::make_unique<comm::World>();
  if (request.options.dry_run) return world->first() ? rehearse(request, world->seat()) : TrainResult{};
  return train_in(*world, request, signal);
}

}  // namespace

TrainResult train(const recipe::Resolved& recipe, const TrainOptions& options) {
  const StopSignal signal(training::only_saves());
  check_profile(options.profile, recipe.recipe.run.steps);
  training::check_price(recipe.recipe);
  TrainObserver nobody;
  const Request request(recipe, options, options.observer != nullptr ? *options.observer : nobody);
  try {
    return start_or_join(request, signal);
  } catch (const run::DivergedError&) {
    throw;  // a flipped bit does not come twice
  } catch (const base::RunError& error) {
    launch::say_final(error.what());  // the same recipe gives the same bits, and the same end
    throw;
  }
}

void TrainObserver::remark(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }
void TrainObserver::warn(const std::string& line) { remark("warning: " + line); }
void TrainObserver::launcher(const std::string& lines) { std::fputs(lines.c_str(), stderr); }

}  // namespace lockstep
