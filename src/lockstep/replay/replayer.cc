#include "lockstep/replay/replayer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/usable.h"
#include "lockstep/replay/probe.h"
#include "lockstep/run/folder/run_folder.h"
#include "lockstep/run/loop/references.h"
#include "lockstep/run/loop/step_inputs.h"
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/session/record.h"

namespace lockstep::replay {

namespace {

using nlohmann::json;
using run::Session;

// As one rank trains it, without what a run does beside its steps.
recipe::Resolved for_one_rank(const std::string& folder, const std::vector<std::string>& words) {
  recipe::Resolved resolved = recipe::read_recipe({.file = folder + "/config.toml", .overrides = {}});
  const recipe::Recipe trained_with = resolved.recipe;
  const recipe::Recipe defaults;
  for (const recipe::Key& key : recipe::recipe_keys()) {
    if (key.name.starts_with("parallel."))
      recipe::set_value(resolved.recipe, key.name, recipe::value_text(key, defaults));
  }
  resolved.recipe.log.fingerprint = false, resolved.recipe.log.chain = false;
  resolved.recipe.log.fingerprint_every = 0, resolved.recipe.log.eval_every = 0;
  resolved.recipe.log.histograms = 0;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos)
      throw base::ConfigError(
          109, fmt::format("{}: expected a key and its value, such as run.device=cpu", base::quoted(word)));
    recipe::set_value(resolved.recipe, word.substr(0, equals), word.substr(equals + 1));
    resolved.origin[word.substr(0, equals)] = "command line";
  }
  run::refuse_changes(resolved, folder);
  return resolved;
}

int64_t last_logged(const std::map<int64_t, Logged>& steps) {
  return steps.empty() ? 0 : steps.rbegin()->first;
}

}  // namespace

std::map<int64_t, Logged> logged_steps(const std::string& run_folder) {
  std::map<int64_t, Logged> steps;
  for (const std::string& text : base::split_lines(base::try_read_file(run_folder + "/metrics.jsonl").text)) {
    const json line = json::parse(text, nullptr, false);
    if (!line.is_object() || !line.contains("loss_hex") || !line["loss_hex"].is_string()) continue;
    if (!line.contains("step") || !line["step"].is_number_integer()) continue;
    Logged& one = steps[line["step"].get<int64_t>()];
    one.loss_hex = line["loss_hex"].get<std::string>();
    if (line.contains("params_hash") && line["params_hash"].is_string())
      one.params_hash = line["params_hash"].get<std::string>();
  }
  return steps;
}

Replayer::Replayer(std::string run_folder, const std::vector<std::string>& words,
                   std::function<void(const std::string&)> say)
    : folder_(std::move(run_folder)),
      trained_with_(recipe::read_recipe({.file = folder_ + "/config.toml", .overrides = {}}).recipe),
      resolved_(for_one_rank(folder_, words)),
      say_(std::move(say)) {
  starts_.push_back({});
  const run::OwnCheckpoints own = run::checkpoints_of(folder_, resolved_);
  for (auto at = own.folders.rbegin(); at != own.folders.rend(); ++at) {
    const std::string name = std::filesystem::path(*at).filename();
    const auto step = base::leading_number(std::string_view(name).substr(name.find('-') + 1));
    if (step) starts_.push_back({.step = *step, .checkpoint = *at});
  }
}

Replayer::~Replayer() = default;

Start Replayer::nearest(int64_t step) const {
  const int64_t last = std::max(starts_.back().step, last_logged(logged_steps(folder_)));
  if (step < 1 || step > last) {
    throw base::ConfigError(350, fmt::format("{} has trained {} step{}, so there is no step {} to replay",
                                             folder_, last, last == 1 ? "" : "s", step));
  }
  Start best;
  for (const Start& one : starts_) {
    if (one.step < step) best = one;
  }
  if (at_ > best.step && at_ < step) return {.step = at_, .checkpoint = {}};
  return best;
}

std::string Replayer::inexact() const {
  const recipe::Recipe& r = trained_with_;
  if (!r.run.exact) return "the run was not exact (run.exact = false): its bits depend on its layout";
  const auto sums = [](const char* ranks, int64_t count, const char* key) {
    return fmt::format(
        "the run had {} {} ranks, which add in an order of their own: one device gives the same values to "
        "rounding, "
        "not the same bits ({} makes them equal)",
        count, ranks, key);
  };
  if (r.parallel.tensor > 1 && r.batch.product_strands == 1)
    return sums("tensor", r.parallel.tensor, "batch.product_strands");
  if (r.parallel.context > 1 && r.batch.sequence_strands == 1)
    return sums("context", r.parallel.context, "batch.sequence_strands");
  return "";
}

std::vector<std::string> Replayer::changes() {
  const json was = json::parse(base::try_read_file(folder_ + "/record.json").text, nullptr, false);
  if (!was.is_object())
    return {folder_ + "/record.json cannot be read, so it is unknown how the run was computed"};
  return run::record_changes(was, run::make_record(session().plan));
}

Session& Replayer::session() {
  if (session_) return *session_;
  session_ = std::make_unique<Session>(run::make_plan(resolved_, {}));
  const json was = json::parse(base::try_read_file(folder_ + "/record.json").text, nullptr, false);
  const auto parameters = was.is_object() && was.contains("parameters") ? was["parameters"] : json();
  if (parameters.is_number_integer() && parameters != session_->plan.model->param_count()) {
    throw base::ConfigError(
        350, fmt::format("the model of {} has {} parameters, its recipe describes one with {}: a "
                         "model that a C++ program brings can only be replayed by that program",
                         folder_, parameters.get<int64_t>(), session_->plan.model->param_count()));
  }
  if (session_->plan.model->pairs) {
    session_->references = run::find_references(*session_, {.folder = folder_}).value();
  }
  at_ = 0;
  return *session_;
}

void Replayer::begin_at(const Start& start) {
  if (start.checkpoint.empty()) {
    if (at_ == start.step && session_) return;
    session_.reset();
    session();
    return;
  }
  at_ = -1;
  at_ = run::load_checkpoint(session(), start.checkpoint);
}

void Replayer::go_to(int64_t done) {
  Start start = nearest(done + 1);
  for (;;) {
    try {
      begin_at(start);
      break;
    } catch (const base::Error& error) {
      // A damaged checkpoint: the one before it takes longer and serves as well.
      if (start.checkpoint.empty() || !checkpoint::is_unusable(error)) throw;
      if (say_) say_(error.what());
      std::erase_if(starts_, [&](const Start& one) { return one.checkpoint == start.checkpoint; });
      start = nearest(done + 1);
    }
  }
  if (at_ == done) return;
  run::TrainOptions options;
  options.first_step = at_;
  options.last_step = done;
  at_ = -1;
  run::Observer nobody;
  at_ = run::train(*session_, options, nobody).steps;
}

SeenStep Replayer::step(int64_t step, Look look) {
  go_to(step - 1);
  Session& session = *session_;
  const data::Batch batch =
      data::read_batch(*session.plan.dataset, run::loader_options(session, step - 1), step - 1);
  at_ = -1;
  SeenStep seen = probe(
      session, {.inputs = run::step_inputs(session.plan, batch, step - 1), .batch = batch, .look = look});
  at_ = step;
  return seen;
}

}  // namespace lockstep::replay
