#include "lockstep/cli/train/train_screen.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/cli/launch/launch_flags.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/cli/train/start_lines.h"
#include "lockstep/cli/train/train_profile.h"
#include "lockstep/terminal/laps_table.h"

namespace lockstep::cli {

namespace {

std::string ranks_of(const Planned& planned) {
  if (planned.session != nullptr) return ranks_line(*planned.session);
  const int world = planned.plan.seat.world;
  return world == 1 ? "" : fmt::format("{}, none was started", world);
}

nlohmann::json source_json(const data::SourceCount& source) {
  return {{"name", source.name},
          {"share", source.share},
          {"samples", source.samples},
          {"seen", source.seen},
          {"epochs", source.epochs()}};
}

void print_plan(const Planned& planned) {
  const run::Plan& plan = planned.plan;
  nlohmann::json out{{"folder", planned.folder},
                     {"ranks", plan.seat.world},
                     {"first_step", planned.first_step},
                     {"steps", plan.recipe().run.steps},
                     {"parameters", plan.model->param_count()},
                     {"memory_bytes", plan.memory.peak_bytes()},
                     {"available_bytes", plan.available_bytes}};
  const recipe::Recipe& r = plan.recipe();
  for (const data::SourceCount& source : plan.dataset->sources(r.run.steps * r.batch.global))
    out["sources"].push_back(source_json(source));
  report_json(out);
}

nlohmann::json trained_json(const TrainResult& result) {
  const run::Summary& s = result.summary;
  nlohmann::json out{{"folder", result.folder},     {"steps", s.steps},
                     {"finished", s.finished},      {"loss", s.loss},
                     {"last_loss", s.last_loss},    {"seconds", s.seconds},
                     {"skipped", s.skipped},        {"tokens_per_s", s.tokens_per_s},
                     {"params_hash", s.params_hash}};
  if (s.eval_loss) out["eval_loss"] = *s.eval_loss;
  if (s.floor) out["floor"] = *s.floor;
  for (const data::SourceCount& source : s.sources) out["sources"].push_back(source_json(source));
  return out;
}

nlohmann::json recorded_json(const TrainResult& result) {
  nlohmann::json out{{"folder", result.folder}, {"steps", result.steps}, {"finished", true}};
  if (!result.params_hash.empty()) out["params_hash"] = result.params_hash;
  if (result.loss) out["loss"] = *result.loss;
  if (result.last_loss) out["last_loss"] = *result.last_loss;
  if (result.eval_loss) out["eval_loss"] = *result.eval_loss;
  return out;
}

}  // namespace

void TrainScreen::planned(const Planned& planned) {
  if (shows_json_alone()) return print_plan(planned);
  progress_.emplace(planned.plan, Progress::Options{.first_step = planned.first_step,
                                                    .earlier = planned.earlier,
                                                    .quiet = options_.quiet});
  if (!planned.only_saves) progress_->say(start_lines(planned.plan, ranks_of(planned), planned.folder));
}

void TrainScreen::profiled(const run::Session& session, const run::Profile& profile,
                           const std::string& trace) {
  progress_->say(profile_lines(session, profile, trace));
}

void TrainScreen::event(const std::string& name, const std::string& why, int64_t step) {
  progress_->event(name, why, step);
  if (options_.timing && name == "first_step") progress_->say(terminal::laps_table(options_.laps));
}

void TrainScreen::note(const std::string& line) {
  if (progress_) progress_->say(line);
}

void TrainScreen::remark(const std::string& line) { cli::remark("{}\n", line); }

void TrainScreen::warn(const std::string& line) {
  if (shows_json_alone()) return;
  if (progress_) return progress_->warn(line);
  cli::remark("{}\n", warning_line(line, terminal::terminal_of(STDERR_FILENO)));
}

void TrainScreen::launcher(const std::string& lines) { say_on_console(lines); }

void print_result(const TrainResult& result) {
  if (!result.first || result.ended == TrainResult::Ended::rehearsed) return;
  const bool trained = result.ended == TrainResult::Ended::trained;
  report_json(trained ? trained_json(result) : recorded_json(result));
}

}  // namespace lockstep::cli
