// lockstep train: a recipe in, a run folder out.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/laps.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/audit.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/launch_flags.h"
#include "lockstep/cli/older.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/train/progress.h"
#include "lockstep/cli/train/start_lines.h"
#include "lockstep/cli/train/stop_signal.h"
#include "lockstep/cli/train/train_profile.h"
#include "lockstep/cli/train/train_recovery.h"
#include "lockstep/cli/train/train_remarks.h"
#include "lockstep/comm/engine.h"
#include "lockstep/data/kind.h"
#include "lockstep/launch/failure.h"
#include "lockstep/launch/process/rank_memory.h"
#include "lockstep/launch/rendezvous/kept_memory.h"
#include "lockstep/launch/schedulers/metadata_watch.h"
#include "lockstep/run/folder/run_folder.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/run/session/choose_layout.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/session/together.h"
#include "lockstep/terminal/laps_table.h"
#include "lockstep/watch/recorder.h"

namespace lockstep::cli {

namespace {

// Tells everyone who watches.
struct Everyone : run::Observer {
  std::vector<run::Observer*> all;
  void stepped(const run::StepReport& report) override {
    for (run::Observer* one : all) one->stepped(report);
  }
  void evaluated(int64_t step, double loss) override {
    for (run::Observer* one : all) one->evaluated(step, loss);
  }
  void event(const std::string& name, const std::string& why, int64_t step) override {
    for (run::Observer* one : all) one->event(name, why, step);
  }
};

struct TrainArguments {
  recipe::RecipeSource source;
  std::string folder, resume = "auto";
  bool json = false, timing = false, quiet = false, dry_run = false;
  std::string profile;
};

// Where --resume never or PATH goes on from, the first that can be used; empty: from the beginning.
std::vector<std::string> starting_points(const TrainArguments& arguments, const std::string& folder) {
  std::vector<std::string> points = saved_since_launch(folder);
  if (arguments.resume == "never") return points;
  if (!std::filesystem::exists(arguments.resume)) {
    throw base::DataError(323, "--resume " + arguments.resume + ": there is no such checkpoint folder");
  }
  for (std::string& one : folders_to_read(arguments.resume)) points.push_back(std::move(one));
  return points;
}

// A run is done when its last checkpoint can be used, to the last byte.
bool is_done(run::OwnCheckpoints& own, int64_t steps) {
  while (own.step > 0 && own.step >= steps) {
    try {
      checkpoint::audit(checkpoint::Opened(own.folders.front()));
      return true;
    } catch (const base::Error& error) {
      if (!checkpoint::is_unusable(error)) throw;
      remark("{}\n", error.what());
      own.drop_newest();
      if (!own.folders.empty()) remark("taking the one before it: {}\n", own.folders.front());
    }
  }
  return false;
}

// What --resume auto goes on from, unless the run is done.
void take_own_newest(const std::string& folder, run::Decision& decision) {
  run::refuse_changes(decision.resolved, folder);
  run::OwnCheckpoints own = run::checkpoints_of(folder, decision.resolved);
  decision.done = is_done(own, decision.resolved.recipe.run.steps);
  decision.step = own.step;
  decision.checkpoints = own.folders;
  if (decision.done) return;
  remark("{}", own.passed_over);
  const int damaged = name_damaged(folder, own.folders);
  // A run that has saved does not start over as if it had not, whatever has become of its checkpoints.
  if (own.folders.empty() && own.passed_over.empty() && (damaged > 0 || run::has_saved(folder))) {
    decision.lost = folder +
                    " has no checkpoint left that can be used: bring one back, name another with --resume "
                    "PATH, or start over with --resume never";
  }
  if (own.folders.empty() && !own.passed_over.empty()) {
    throw base::ConfigError(160, folder +
                                     " holds only checkpoints of other recipes: go on from one with "
                                     "--resume PATH, or start over with --resume never");
  }
}

// The newest complete checkpoint that loads; a damaged one is named and the next older one is tried.
int64_t load_first(run::Session& session, const std::vector<std::string>& candidates) {
  for (size_t k = 0; k < candidates.size(); ++k) {
    try {
      return run::load_checkpoint(session, candidates[k]);
    } catch (const base::Error& error) {
      if (!checkpoint::is_unusable(error)) throw;
      if (k + 1 == candidates.size()) {
        offer_older(candidates[k]);
        throw;
      }
      remark("{}\ntrying the one before it: {}\n", error.what(), candidates[k + 1]);
    }
  }
  return 0;
}

void print_summary(const run::Summary& s, const std::string& folder) {
  nlohmann::json out{{"folder", folder},
                     {"steps", s.steps},
                     {"finished", s.finished},
                     {"loss", s.loss},
                     {"last_loss", s.last_loss},
                     {"seconds", s.seconds},
                     {"skipped", s.skipped},
                     {"tokens_per_s", s.tokens_per_s},
                     {"params_hash", s.params_hash}};
  if (s.eval_loss) out["eval_loss"] = *s.eval_loss;
  if (s.floor) out["floor"] = *s.floor;
  print("{}\n", out.dump());
}

// A mistake in the recipe itself comes first. One that is sound alone may contradict what "auto" meant in
// this folder: then the changed key is what the user must hear of.
run::Plan plan_to_go_on(const recipe::Resolved& said, const recipe::Resolved& resolved,
                        const std::string& folder, const run::PlanOptions& options) {
  try {
    return run::make_plan(resolved, {}, options);
  } catch (const base::ConfigError&) {
    recipe::Resolved alone = said;
    run::choose_layout(alone, options);
    run::make_plan(alone, {}, options);
    run::refuse_said_changes(resolved, folder);
    throw;
  }
}

// What the first rank has made when it has decided.
struct FirstRank {
  bool only_looks = false;  // a dry run: the folder stays as it is
  std::optional<run::Plan> plan = {};
  std::unique_ptr<run::RunFolder> files = nullptr;
  void take_folder(const std::string& folder) {
    if (only_looks) return;
    const auto holder = launch::under_launcher() ? run::Holder::rank : run::Holder::alone;
    files = std::make_unique<run::RunFolder>(folder, holder);
  }
};

// The first rank looks at the folder and resolves what the recipe leaves open; the plan that it needs for
// that is its own.
run::Decision decide(const TrainArguments& arguments, recipe::Resolved resolved, const std::string& folder,
                     const run::PlanOptions& options, FirstRank& own) {
  // What another run is still writing is not looked at; a folder that is not there yet is made once the
  // recipe is known to be good. The other ranks wait for what is decided here before they touch the folder.
  std::error_code nothing_there;
  if (std::filesystem::is_directory(folder, nothing_there)) own.take_folder(folder);
  data::settle_kind(resolved);
  const recipe::Resolved said = resolved;
  const bool fresh = arguments.resume == "never" && !launch::started_again();
  const run::Earlier earlier = fresh ? run::Earlier{} : run::look_at(folder);
  if (!fresh) run::adopt_earlier(resolved, folder);
  if (earlier.checkpoint.empty() && !resolved.recipe.model.from.empty())
    static_cast<void>(folders_to_read(resolved.recipe.model.from));
  run::Decision decision;
  if (const std::string why = run::choose_layout(resolved, options); !why.empty()) remark("{}\n", why);
  base::end_lap(options.laps, "look at the run folder");
  run::Plan plan = arguments.resume == "auto" ? plan_to_go_on(said, resolved, folder, options)
                                              : run::make_plan(resolved, {}, options);
  if (options.seat.world > 1) run::check_ranks(plan);
  decision.resolved = plan.resolved;
  if (arguments.resume == "auto") {
    take_own_newest(folder, decision);
  } else {
    decision.checkpoints = starting_points(arguments, folder);
  }
  if (!decision.done && !own.files) own.take_folder(folder);
  own.plan = std::move(plan);
  return decision;
}

int already_done(const TrainArguments& arguments, const run::Decision& decision, const std::string& folder) {
  remark(
      "already done: {} holds {} steps. Use a larger run.steps to train longer, run.name=NAME for another "
      "run, or --resume never to start over\n",
      folder, decision.step);
  if (!arguments.json) return 0;
  nlohmann::json out{{"folder", folder}, {"steps", decision.step}, {"finished", true}};
  if (!decision.checkpoints.empty())
    out["params_hash"] = checkpoint::read_manifest(decision.checkpoints[0]).params_hash;
  const run::RecordedEnd end = run::recorded_end(folder, decision.step);
  if (end.loss) out["loss"] = *end.loss;
  if (end.eval_loss) out["eval_loss"] = *end.eval_loss;
  print("{}\n", out.dump());
  return 0;
}

// Says where the time went when the first step has ended.
struct TimingNews : run::Observer {
  const base::Laps& laps;
  Progress& progress;
  TimingNews(const base::Laps& from, Progress& to) : laps(from), progress(to) {}
  void event(const std::string& name, const std::string&, int64_t) override {
    if (name == "first_step") progress.say(terminal::laps_table(laps));
  }
};

// Its launcher started it for nothing else than saving what ranks before it left in memory.
bool only_saves() { return std::getenv("LOCKSTEP_SAVE_ONLY") != nullptr; }

// What stays with a rank from its start to its end, besides the session.
struct Around {
  const StopSignal& signal;
  watch::Recorder& recorder;
  std::unique_ptr<run::MemorySnapshots> snapshots;
  const std::string& folder;
};

run::TrainOptions train_options(run::Session& session, const run::Decision& decision, const Around& around) {
  run::TrainOptions options;
  std::optional<int64_t> in_memory = restore_newer(around.snapshots.get(), decision);
  if (!in_memory && !around.snapshots) in_memory = restore_kept(session, around.folder, decision);
  if (!in_memory && !decision.lost.empty()) throw base::DataError(328, decision.lost);
  options.first_step = in_memory ? *in_memory : load_first(session, decision.checkpoints);
  if (around.snapshots && !in_memory) around.snapshots->saved(options.first_step);
  base::end_lap(session.plan.laps, "load the checkpoint");
  options.unsaved = in_memory.has_value();
  options.save_only = only_saves();
  options.stop_signal = &around.signal.value();
  const auto& when = session.plan.recipe().checkpoint;
  options.save_every = when.every;
  options.save_seconds = when.every > 0 ? 0 : 60 * when.minutes;
  options.recorder = &around.recorder;
  options.snapshots = around.snapshots.get();
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
  } catch (const base::RunError& error) {
    if (error.number() == 601) end_saving();
    throw;
  }
}

// A rank beside the first: it works and keeps quiet; what it has to say is in its log.
int run_beside(const TrainArguments& arguments, run::Session& session, const run::Decision& decision,
               const std::string& folder, const Around& around) {
  run::TrainOptions options = train_options(session, decision, around);
  read_profile(arguments.profile, options);
  options.profile.made = [&](const run::Profile& profile) { keep_profile(session, profile, folder); };
  run::Saver saver(session, folder);
  options.save = [&](int64_t step) { save_now(saver, step, around.signal); };
  run::Observer nobody;
  const run::Summary summary = train_and_save(session, options, nobody, [&] { saver.finish(); });
  return summary.finished ? 0 : 75;
}

// Tells of saves that have ended since, whenever a step has.
struct SaveNews : run::Observer {
  run::Saver& saver;
  run::Observer& to;
  NoticeWatch& notice;
  run::MemorySnapshots* snapshots;
  SaveNews(run::Saver& from, run::Observer& everyone, NoticeWatch& watch, run::MemorySnapshots* memory)
      : saver(from), to(everyone), notice(watch), snapshots(memory) {}
  void stepped(const run::StepReport&) override { tell(); }
  void tell() {
    while (const auto saved = saver.poll()) {
      const checkpoint::Outcome& o = saved->outcome;
      // A failure is no end: the one before it still stands, and the next save may find the disk in better
      // order.
      if (o.error != 0) {
        to.event("checkpoint_failed", o.why, o.step);
      } else {
        to.event("checkpoint_saved",
                 fmt::format("saved {} ({} in {}, training paused {})", o.folder,
                             base::human_bytes(static_cast<double>(o.bytes)), base::human_duration(o.seconds),
                             base::human_duration(saved->pause_ms / 1e3)),
                 o.step);
        if (snapshots != nullptr) snapshots->saved(o.step);
        notice.saved(o.seconds + saved->pause_ms / 1e3, o.step);
      }
    }
  }
};

// The last save must succeed; how it went is told in any case.
void end_saving(run::Saver& saver, SaveNews& news) {
  try {
    saver.finish();
  } catch (const base::IoError&) {
    news.tell();
    throw;
  }
  news.tell();
}

int run_first(const TrainArguments& arguments, run::Session& session, const run::Decision& decision,
              run::RunFolder& files, const Around& around) {
  const std::string& folder = files.path();
  const StopSignal& signal = around.signal;
  run::TrainOptions options = train_options(session, decision, around);
  read_profile(arguments.profile, options);
  const bool starts_over = arguments.resume == "never" && !launch::started_again();
  const run::Begun begun =
      files.begin(session.plan, options.first_step,
                  starts_over                                             ? run::History::fresh
                  : arguments.resume == "auto" || launch::started_again() ? run::History::goes_on
                                                                          : run::History::other);
  Progress progress(session.plan, {.first_step = options.first_step,
                                   .earlier = run::recorded_losses(folder, options.first_step),
                                   .quiet = arguments.quiet});
  files.on_trouble = [&](const std::string& why) {
    progress.warn(why + "; what would go there waits for room");
  };
  if (!options.save_only) {
    const std::string lines = start_lines(session.plan, ranks_line(session), folder);
    progress.say(with_remarks(lines, session.plan, !arguments.folder.empty()));
  }
  if (!begun.missing.empty()) progress.warn(begun.missing);
  for (const std::string& change : begun.changes) progress.warn("bits may differ from here on: " + change);
  if (options.first_step == 0) name_passed_over(session.weights_from);
  if (options.first_step > 0) progress.say(fmt::format("going on from step {}", options.first_step));
  const std::string length =
      change_of_length(session.plan.recipe(), decision.checkpoints, options.first_step);
  if (!length.empty()) progress.say(length);

  run::Saver saver(session, folder);
  Everyone everyone;
  std::optional<TimingNews> timing;
  if (arguments.timing && session.plan.laps != nullptr) timing.emplace(*session.plan.laps, progress);
  NoticeWatch notice(session, folder, everyone);
  SaveNews news(saver, everyone, notice, around.snapshots.get());
  everyone.all = {&files, &progress, &news, &notice};
  if (timing) everyone.all.push_back(&*timing);
  options.save = [&](int64_t step) { save_now(saver, step, signal), news.tell(); };
  options.profile.made = [&](const run::Profile& profile) {
    keep_profile(session, profile, folder);
    progress.say(profile_lines(session, profile, folder));
  };
  everyone.event("start",
                 options.first_step > 0 ? fmt::format("going on from step {}", options.first_step)
                                        : "from the beginning",
                 options.first_step);
  if (!begun.missing.empty()) everyone.event("lines_missing", begun.missing, options.first_step);
  base::end_lap(session.plan.laps, "open the run folder");
  const run::Summary summary = train_and_save(session, options, everyone, [&] { end_saving(saver, news); });
  everyone.event(
      summary.finished ? "finished" : "preempted",
      summary.finished
          ? fmt::format("{} steps done, params_hash {}", summary.steps, summary.params_hash)
          : fmt::format("stopped by signal {} at a step boundary and saved", signal.value().load()),
      summary.steps);
  if (options.save_only && !summary.finished) {
    progress.say(fmt::format("run the same command again to go on from step {}", summary.steps));
  } else {
    progress.finish(summary, folder);
  }
  if (const std::string left = files.unwritten(); !left.empty())
    remark("warning: {} could not be written: the disk had no room for them until the end\n", left);
  if (arguments.json) print_summary(summary, folder);
  return summary.finished ? 0 : 75;
}

// What the run would begin with, for the first of so many ranks, none of which is started.
int rehearse(const TrainArguments& arguments, const recipe::Resolved& resolved, const std::string& folder,
             const comm::Seat& seat) {
  run::PlanOptions options;
  options.seat = seat;
  options.node_shares_memory = comm::would_share_memory(resolved.recipe.parallel.engine);
  options.shares_memory = options.node_shares_memory && seat.nodes == 1;
  options.per_node = seat.nodes == 1 ? 0 : seat.local_world;
  FirstRank own{.only_looks = true};
  const run::Decision decision = decide(arguments, resolved, folder, options, own);
  if (decision.done) return already_done(arguments, decision, folder);
  if (!decision.lost.empty()) throw base::DataError(328, decision.lost);
  const std::optional<run::Plan>& plan = own.plan;
  const int64_t first =
      decision.checkpoints.empty() ? 0 : checkpoint::read_manifest(decision.checkpoints[0]).step;
  if (arguments.json) {
    print("{}\n", nlohmann::json{{"folder", folder},
                                 {"ranks", seat.world},
                                 {"first_step", first},
                                 {"steps", plan->recipe().run.steps},
                                 {"parameters", plan->model->param_count()},
                                 {"memory_bytes", plan->memory.peak_bytes()},
                                 {"available_bytes", plan->available_bytes}}
                      .dump());
    return 0;
  }
  Progress progress(*plan, {.quiet = arguments.quiet});
  const std::string ranks = seat.world == 1 ? "" : fmt::format("{}, none was started", seat.world);
  progress.say(with_remarks(start_lines(*plan, ranks, folder), *plan, !arguments.folder.empty()));
  progress.say(fmt::format("a dry run: nothing was started or written; the run would {} step {}",
                           first == 0 ? "begin at" : "go on from", first == 0 ? 1 : first));
  return 0;
}

// The launcher's verdict on a hang says more: it comes before the collectives' own timeout, unless another
// one was asked for. (A recipe from `lockstep init` names every key: one with its default value is no wish.)
std::chrono::seconds collective_timeout(const recipe::Recipe& recipe) {
  const int64_t timeout = recipe.parallel.timeout;
  const recipe::AutoInt& hang = recipe.run.hang_timeout;
  const bool wished = timeout != recipe::Recipe().parallel.timeout;
  return std::chrono::seconds(wished || hang.is_auto ? timeout : std::max(timeout, 2 * hang.value));
}

int run_training(const TrainArguments& arguments, const recipe::Resolved& resolved, const std::string& folder,
                 comm::World& world, const StopSignal& signal, base::Laps& laps) {
  world.use(resolved.recipe.parallel.engine, collective_timeout(resolved.recipe));
  run::compare_recipes(world, resolved.recipe);
  std::unique_ptr<run::Ranks> ranks;
  if (world.size() > 1) ranks = std::make_unique<run::Ranks>(world);
  run::PlanOptions options = ranks ? run::for_this(*ranks) : run::PlanOptions{};
  options.laps = &laps;
  base::end_lap(&laps, "meet the ranks");
  FirstRank own;
  const run::Decision decision =
      run::decide_together(world, [&] { return decide(arguments, resolved, folder, options, own); });
  if (decision.done) return world.first() ? already_done(arguments, decision, folder) : 0;
  run::Plan plan =
      own.plan ? *std::exchange(own.plan, std::nullopt) : run::make_plan(decision.resolved, {}, options);
  if (plan.recipe().run.exact) run::compare_records(world, plan);

  watch::Recorder recorder =
      only_saves() ? watch::Recorder(world.rank()) : watch::Recorder(folder, world.rank());
  if (!recorder.problem().empty()) remark("warning: nothing will be recorded: {}\n", recorder.problem());
  laps.end("open the run folder");
  run::Session session(std::move(plan), ranks.get(), recorder.ring());
  recorder.describe(run::recorded_names(session));
  signal.arm();  // from here on there is something to save; a rank that still waits for others just ends
  const Around around{signal, recorder, open_snapshots(session), folder};
  if (arguments.resume != "auto" && world.size() == 1) launch::forget_kept_memory(folder);
  // Ranks of a launcher hear of it from there.
  const auto metadata = world.size() > 1 ? nullptr : launch::MetadataWatch::here([](const std::string& text) {
    say_on_console("lockstep: " + text + "\n");
  });
  return own.files ? run_first(arguments, session, decision, *own.files, around)
                   : run_beside(arguments, session, decision, folder, around);
}

}  // namespace

int train_command(Arguments& arguments) {
  base::Laps laps("load the program and its libraries");
  const StopSignal signal(only_saves());
  TrainArguments wanted;
  arguments.recipe(wanted.source);
  arguments.option("--run", wanted.folder, "the run folder; default: log.folder/run.name");
  arguments.option("--resume", wanted.resume,
                   "auto: go on where the folder's run stopped; never: start over; or a checkpoint");
  arguments.option("--profile", wanted.profile,
                   "FIRST:LAST: note what runs in these steps, as trace/profile.json and a table");
  arguments.flag("--timing", wanted.timing, "print where the time up to the end of the first step went");
  arguments.flag("--quiet,-q", wanted.quiet, "print nothing but warnings and errors");
  arguments.flag("--dry-run", wanted.dry_run, "check everything and print the plan, start and write nothing");
  arguments.flag("--json", wanted.json, "print the summary as JSON on standard output");
  LaunchFlags launch;
  add_launch_flags(arguments, launch);
  arguments.example("lockstep train", "the default recipe: a small GPT on the embedded grammar");
  arguments.example("lockstep train first.toml optim.lr=1e-3 run.name=second",
                    "one key changed, in a run of its own");
  arguments.example("lockstep train first.toml --nproc 4", "four ranks on this machine; the same bits");
  arguments.example("lockstep train first.toml --nproc 8 parallel.zero=3",
                    "weights, gradients and moments shared out");
  arguments.example("lockstep train model.family=llama precision.compute=bf16 run.name=llama",
                    "another model");
  if (!arguments.parse()) return 0;
  run::TrainOptions checked;
  read_profile(wanted.profile, checked);  // wrong words are refused before anything starts
  const recipe::Resolved resolved = recipe::read_recipe(wanted.source);
  check_profile(checked, resolved.recipe.run.steps);
  laps.end("read the recipe");
  const std::string folder =
      !wanted.folder.empty() ? wanted.folder : resolved.recipe.log.folder + "/" + resolved.recipe.run.name;
  launch.wishes.fits = [&](int ranks) { run::check_layout(resolved.recipe, ranks); };
  const std::string& device = resolved.recipe.run.device;
  launch.wishes.one_by_default = device == "cpu" || device.starts_with("cuda:");
  launch.wishes.run_folder = folder;
  const recipe::AutoInt& hang = resolved.recipe.run.hang_timeout;
  if (!hang.is_auto) launch.wishes.hang_seconds = static_cast<double>(hang.value);
  launch.wishes.from_scratch = wanted.resume != "auto";
  launch.wishes.replicas = static_cast<int>(resolved.recipe.checkpoint.replicas);
  launch.wishes.notice_seconds =
      run::find_notice(resolved.recipe.checkpoint.notice, run::this_place()).seconds;
  if (wanted.dry_run) {
    launch.wishes.instead = [&](const comm::Seat& seat) { return rehearse(wanted, resolved, folder, seat); };
  }
  std::vector<std::string> argv = {"train"};
  argv.insert(argv.end(), arguments.words().begin(), arguments.words().end());
  std::unique_ptr<comm::World> world;
  if (const std::optional<int> code = launch_or_join(launch, argv, folder + "/logs", world)) return *code;
  if (wanted.dry_run) return world->first() ? rehearse(wanted, resolved, folder, world->seat()) : 0;
  try {
    return run_training(wanted, resolved, folder, *world, signal, laps);
  } catch (const base::RunError& error) {
    // The same recipe gives the same bits, and the same end; but a flipped bit does not come twice.
    if (error.number() != 602) launch::say_final(error.what());
    throw;
  }
}

}  // namespace lockstep::cli
