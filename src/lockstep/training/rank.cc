#include "lockstep/training/rank.h"

#include <fmt/format.h>

#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/older.h"
#include "lockstep/launch/failure.h"
#include "lockstep/launch/process/rank_memory.h"
#include "lockstep/run/loop/references.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/training/data_watch.h"
#include "lockstep/training/forecast_file.h"
#include "lockstep/training/profile_file.h"
#include "lockstep/training/profile_request.h"
#include "lockstep/training/recovery.h"
#include "lockstep/training/remarks.h"
#include "lockstep/training/save_news.h"
#include "lockstep/training/spending.h"
#include "lockstep/training/uploader.h"

namespace lockstep::training {

namespace {

using Asked = run::TrainOptions::Asked;

// Tells everyone who watches.
struct Everyone : run::Observer {
  std::vector<run::Observer*> all;
  void stepped(const run::StepReport& report) override {
    for (run::Observer* one : all) one->stepped(report);
  }
  void evaluated(int64_t step, double loss) override {
    for (run::Observer* one : all) one->evaluated(step, loss);
  }
  void histogram(int64_t step, const std::string& block, const base::Histogram& gradient) override {
    for (run::Observer* one : all) one->histogram(step, block, gradient);
  }
  void event(const std::string& name, const std::string& why, int64_t step) override {
    for (run::Observer* one : all) one->event(name, why, step);
  }
};

// Of preference tuning, while the session's weights are still those that the run starts with. False: the run
// was asked to stop meanwhile.
bool know_reference(const Rank& rank) {
  run::Session& session = rank.session;
  TrainObserver& observer = rank.request.observer;
  if (!session.plan.model->pairs || only_saves()) return true;
  std::optional<data::References> found = run::find_references(
      session, {.folder = rank.request.folder,
                .stop_signal = &rank.signal.value(),
                .progress =
                    [&](int64_t done, int64_t all) {
                      if (session.ranks->first())
                        observer.remark(fmt::format("reference: log-probabilities of {} of {} pairs computed",
                                                    done / 2, all / 2));
                    },
                .warn = [&](const std::string& why) { observer.warn(why); }});
  if (!found) return false;
  session.references = std::move(*found);
  base::end_lap(session.plan.laps, "compute the reference");
  return true;
}

// The newest of what the launcher's memory, the folder of a launcher that ended, and checkpoints hold.
run::TrainOptions train_options(const Rank& rank) {
  run::Session& session = rank.session;
  const run::Decision& decision = rank.decision;
  TrainObserver& observer = rank.request.observer;
  run::TrainOptions options;
  options.save_only = only_saves() || !know_reference(rank);
  std::optional<int64_t> in_memory = restore_newer(rank.snapshots.get(), decision);
  if (!in_memory && !rank.snapshots)
    in_memory = restore_kept(session, rank.request.folder, decision, observer);
  if (!in_memory && !decision.lost.empty()) throw checkpoint::CheckpointError(328, decision.lost);
  options.first_step = in_memory ? *in_memory : load_first(session, decision.checkpoints, observer);
  if (rank.snapshots && !in_memory) rank.snapshots->saved(options.first_step);
  base::end_lap(session.plan.laps, "load the checkpoint");
  options.unsaved = in_memory.has_value();
  options.stop_signal = &rank.signal.value();
  const auto& when = session.plan.recipe().checkpoint;
  options.save_every = when.every;
  options.save_seconds = when.every > 0 ? 0 : 60 * when.minutes;
  options.recorder = &rank.recorder;
  options.snapshots = rank.snapshots.get();
  options.profile.first = rank.request.options.profile.first;
  options.profile.last = rank.request.options.profile.last;
  return options;
}

// Once the run was asked to stop, no second Ctrl-C breaks what is being written.
void save_now(run::Saver& saver, int64_t step, const StopSignal& signal) {
  signal.saving(true);
  saver.save(step);
  if (signal.value().load() == 0) signal.saving(false);
}

// A run that ends because its loss is not a number has saved what stood before it: that is waited for.
run::Summary train_and_save(run::Session& session, const run::TrainOptions& options, run::Observer& observer,
                            const std::function<void()>& end_saving) {
  try {
    const run::Summary summary = run::train(session, options, observer);
    end_saving();
    return summary;
  } catch (const run::NonfiniteError&) {
    end_saving();
    throw;
  }
}

TrainResult result_of(const run::Summary& summary, const Rank& rank) {
  TrainResult result;
  result.ended = TrainResult::Ended::trained;
  result.exit_code = summary.finished ? 0 : launch::kPreempted;
  result.first = rank.session.ranks->first();
  result.folder = rank.request.folder;
  result.steps = summary.steps;
  result.finished = summary.finished;
  if (summary.averaged > 0) result.loss = summary.loss, result.last_loss = summary.last_loss;
  result.eval_loss = summary.eval_loss;
  result.params_hash = summary.params_hash;
  result.summary = summary;
  return result;
}

run::History history_of(const Request& request) {
  if (request.starts_over()) return run::History::fresh;
  return request.automatic() || launch::started_again() ? run::History::goes_on : run::History::other;
}

// What is said when all ranks are ready: the plan, what is odd about it, and where it goes on.
void say_beginning(const Rank& rank, const run::TrainOptions& options, const run::Begun& begun) {
  TrainObserver& observer = rank.request.observer;
  const run::Plan& plan = rank.session.plan;
  const Planned planned{.plan = plan,
                        .session = &rank.session,
                        .folder = rank.request.folder,
                        .first_step = options.first_step,
                        .only_saves = options.save_only,
                        .earlier = run::recorded_losses(rank.request.folder, options.first_step)};
  say_planned(planned, rank.request);
  if (!begun.missing.empty()) observer.warn(begun.missing);
  for (const std::string& change : begun.changes) observer.warn("bits may differ from here on: " + change);
  if (options.first_step == 0) {
    checkpoint::name_passed_over(rank.session.weights_from,
                                 [&](const std::string& line) { observer.remark(line); });
    return;
  }
  observer.note(fmt::format("resuming from step {}", options.first_step));
  const std::string length = change_of_length(plan.recipe(), rank.decision.checkpoints, options.first_step);
  if (!length.empty()) observer.note(length);
}

}  // namespace

constexpr const char* kBudgetSpent = "run.budget is spent";

TrainResult run_beside(const Rank& rank) {
  run::TrainOptions options = train_options(rank);
  options.profile.made = [&](const run::Profile& profile, Asked) {
    keep_profile(rank.session, profile, rank.request.folder);
  };
  run::Saver saver(rank.session, rank.request.folder);
  options.save = [&](int64_t step) { save_now(saver, step, rank.signal); };
  run::Observer nobody;
  const run::Summary summary = train_and_save(rank.session, options, nobody, [&] { saver.finish(); });
  if (summary.by_request) launch::say_final(kBudgetSpent);  // ranks that are started again would stop at once
  return result_of(summary, rank);
}

namespace {

std::unique_ptr<Uploader> uploader_of(const Rank& rank) {
  const auto& when = rank.session.plan.recipe().checkpoint;
  if (when.to.empty()) return nullptr;
  auto uploads = std::make_unique<Uploader>(
      UploadOptions{.to = when.to,
                    .run_folder = rank.request.folder,
                    .retention = {.keep = static_cast<int>(when.keep), .every = when.keep_every},
                    .owner = rank.store_owner});
  if (!rank.request.starts_over()) {
    if (const auto left = newest_not_uploaded(when.to, rank.request.folder)) uploads->saved(*left);
  }
  return uploads;
}

// The machine of a run that is stopped may be gone when the notice is over.
double upload_seconds(const Rank& rank, const run::Summary& summary) {
  const auto& notice = rank.session.plan.recipe().checkpoint.notice;
  return summary.finished ? kUploadSeconds : run::find_notice(notice, run::this_place()).seconds;
}

}  // namespace

TrainResult run_first(const Rank& rank, run::RunFolder& files) {
  run::Session& session = rank.session;
  TrainObserver& observer = rank.request.observer;
  const std::string& folder = rank.request.folder;
  run::TrainOptions options = train_options(rank);
  const run::Begun begun = files.begin(session.plan, options.first_step, history_of(rank.request));
  files.on_trouble = [&](const std::string& why) {
    observer.warn(why + "; its lines are kept in memory until there is space");
  };
  say_beginning(rank, options, begun);

  run::Saver saver(session, folder);
  Everyone everyone;
  NoticeWatch notice(session, folder, everyone);
  const std::unique_ptr<Uploader> uploads = uploader_of(rank);
  SaveNews news(
      saver,
      {.everyone = everyone, .notice = notice, .snapshots = rank.snapshots.get(), .uploads = uploads.get()});
  DataWatch data(session.plan.recipe().data, everyone);
  const std::unique_ptr<SpendingWatch> spending =
      options.save_only ? nullptr
                        : spending_watch(session,
                                         {.folder = folder,
                                          .fresh = history_of(rank.request) == run::History::fresh,
                                          .goes_on = launch::started_again()},
                                         everyone);
  everyone.all = {&files, &observer, &news, &notice, &data};
  if (spending) {
    everyone.all.push_back(spending.get());
    options.wants_end = [&] { return spending->is_spent(); };
  }
  options.save = [&](int64_t step) { save_now(saver, step, rank.signal), news.tell(); };
  ProfileRequest request(folder);
  options.profile.requested = [&] { return request.steps(); };
  options.profile.made = [&](const run::Profile& profile, Asked asked) {
    const std::string trace = keep_profile(session, profile, folder);
    if (asked == Asked::before) return observer.profiled(session, profile, trace);
    everyone.event("profiled", profiled_words(profile), profile.first_step + profile.steps - 1);
  };
  everyone.event("start",
                 options.first_step > 0 ? fmt::format("resuming from step {}", options.first_step)
                                        : "from the beginning",
                 options.first_step);
  if (!begun.missing.empty()) everyone.event("lines_missing", begun.missing, options.first_step);
  base::end_lap(session.plan.laps, "open the run folder");
  const run::Summary summary = train_and_save(session, options, everyone, [&] { news.finish(); });
  if (spending) spending->keep();
  const bool out_of_money = spending && summary.by_request;
  if (out_of_money) launch::say_final(kBudgetSpent);
  const TrainResult result = result_of(summary, rank);
  files.ends({.loss = result.loss, .last_loss = result.last_loss, .eval_loss = result.eval_loss});
  everyone.event(
      summary.finished ? "finished" : "preempted",
      summary.finished ? fmt::format("{} steps done, params_hash {}", summary.steps, summary.params_hash)
      : out_of_money
          ? fmt::format("{}: stopped at a step boundary and saved; raise run.budget to continue",
                        spending->describe())
          : fmt::format("stopped by signal {} at a step boundary and saved", rank.signal.value().load()),
      summary.steps);
  if (out_of_money) observer.warn(spending->describe() + ": stopped and saved; raise run.budget to continue");
  const std::string not_uploaded =
      news.finish_uploads(upload_seconds(rank, summary), rank.signal.value(), summary.steps);
  if (options.save_only && !summary.finished) {
    observer.note(fmt::format("run the same command again to resume from step {}", summary.steps));
  } else {
    observer.ended(result);
    const std::string receipt = write_receipt(session.plan, folder);  // all is saved by now
    if (summary.finished && !receipt.empty()) observer.note(receipt);
  }
  if (const std::string left = files.unwritten(); !left.empty())
    observer.warn(left + " could not be written: the disk stayed full until the end");
  if (!not_uploaded.empty()) {
    throw base::IoError(344, fmt::format("step {} is saved in {}, but {}; run the same command again to "
                                         "upload it",
                                         summary.steps, folder, not_uploaded));
  }
  return result;
}

}  // namespace lockstep::training
