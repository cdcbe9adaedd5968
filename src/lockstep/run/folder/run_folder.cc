#include "lockstep/run/folder/run_folder.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/usable.h"
#include "lockstep/run/folder/metrics_lines.h"
#include "lockstep/run/session/record.h"

namespace lockstep::run {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// Keys that may differ between two starts of one run: they change how it runs, not what it computes.
constexpr const char* kFreeKeys[] = {"run.device",       "run.threads",      "data.prefetch",
                                     "data.workers",     "run.hang_timeout", "memory.limit_gib",
                                     "memory.recompute", "optim.offload",    "run.name",
                                     "run.budget",       "run.price"};
bool is_free(const std::string& key) {
  for (const char* free : kFreeKeys) {
    if (key == free) return true;
  }
  return key.starts_with("log.") || key.starts_with("checkpoint.") || key.starts_with("parallel.");
}

// Keys that say how long to train. They may differ too: who goes on hears what that does to the learning rate
// (run/loop/remarks.h).
bool is_length(const std::string& key) { return key == "run.steps" || key == "optim.decay_steps"; }

// {0, 10, 2} of "0.10.2".
std::vector<int64_t> numbers_of(std::string_view version) {
  std::vector<int64_t> numbers;
  while (const std::optional<int64_t> number = base::take_number(version)) {
    numbers.push_back(*number);
    if (!version.starts_with('.')) break;
    version.remove_prefix(1);
  }
  return numbers;
}

// DataError 347: record.json names a newer version as the folder's writer.
void refuse_newer(const std::string& folder) {
  const json record = json::parse(base::try_read_file(folder + "/record.json").text, nullptr, false);
  const std::string by = record.is_object() ? record.value("build", std::string()) : "";
  if (numbers_of(by) <= numbers_of(base::kVersion)) return;
  throw base::DataError(
      347, fmt::format("{} was written by Lockstep {}, and this is {}: install that version or a newer "
                       "one, or give this run its own name with run.name=NAME",
                       folder, base::quoted(by, 20), base::kVersion));
}

std::optional<recipe::Recipe> earlier_recipe(const std::string& folder) {
  const std::string path = folder + "/config.toml";
  std::error_code error;  // a name that leads nowhere is told by who reads it
  if (!fs::exists(path, error) && !error) return std::nullopt;
  try {
    return recipe::read_recipe({.file = path, .overrides = {}}).recipe;
  } catch (const base::ConfigError&) {
    refuse_newer(folder);  // has keys that this version does not know
    throw;
  }
}

// Keys that are not free and differ, one a line.
std::string changes_since(const recipe::Recipe& earlier, const recipe::Resolved& now) {
  std::string changes;
  for (const std::string& name : recipe::differing_keys(now.recipe, earlier)) {
    const recipe::Key* key = recipe::find_key(name);
    const std::string was = recipe::value_text(*key, earlier);
    // The version that wrote this did not have the key; what "auto" comes to is what it did.
    if (is_free(name) || is_length(name) || (was == "\"auto\"" && !recipe::is_wished(now, *key))) continue;
    changes += fmt::format("\n    {}: was {}, is {}", name, was, recipe::value_text(*key, now.recipe));
  }
  return changes;
}

// "checkpoints/step-00000100": 100.
int64_t step_of(const std::string& checkpoint) {
  const std::string name = fs::path(checkpoint).filename();
  return base::leading_number(std::string_view(name).substr(name.find('-') + 1)).value_or(0);
}

// A write beside a file that was killed before its rename: CONFIG.PID.tmp. Nobody else writes here now.
void remove_leftovers(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    for (const char* own : {"config.toml.", "record.json.", "metrics.jsonl.", "events.jsonl."}) {
      const std::string_view number = std::string_view(name).substr(std::min(name.size(), std::strlen(own)));
      const bool ours = name.starts_with(own) && number.ends_with(".tmp") &&
                        number.find_first_not_of("0123456789") == number.size() - 4;
      std::error_code ignored;
      if (ours) fs::remove(at->path(), ignored);
    }
  }
}

std::vector<std::string> changes_of_record(const std::string& path, const json& record) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  const json was = json::parse(base::read_file(path), nullptr, false);
  if (was.is_object()) return record_changes(was, record);
  return {path + " of the earlier run is not JSON, so it is unknown under which conditions it was computed"};
}

// The last step whose line is there, and the one that the run goes on from.
std::string missing_lines(int64_t last, int64_t first_step, int64_t every) {
  const int64_t expected = first_step - first_step % every;
  if (last >= expected) return "";
  return fmt::format(
      "metrics.jsonl lacks the lines of steps {} to {}: the disk was full when the run ended, or they were "
      "removed",
      last + 1, expected);
}

json finite_or_text(double value) {
  return std::isfinite(value) ? json(value) : json(fmt::format("{}", value));
}

// Which key signs is not the recipe's business: it belongs to whoever trains.
constexpr const char* kChainKey = "LOCKSTEP_CHAIN_KEY";

std::optional<SigningKey> signing_key(const std::string& path) {
  if (path.empty()) return std::nullopt;
  SigningKey key(path);
  if (!key.can_sign())
    throw base::ConfigError(
        337, fmt::format("{}={} is a public key, which cannot sign; name the private one", kChainKey, path));
  return key;
}

std::string hex_of(double value) { return fmt::format("{:a}", value); }

}  // namespace

std::optional<recipe::Recipe> recipe_of(const std::string& checkpoint) {
  try {
    recipe::RecipeSource source;
    source.text = checkpoint::read_manifest(checkpoint).recipe_toml;
    if (source.text.empty()) return std::nullopt;
    return recipe::read_recipe(source).recipe;
  } catch (const base::Error&) {
    return std::nullopt;
  }
}

Earlier look_at(const std::string& folder) {
  Earlier earlier;
  std::error_code error;
  earlier.exists = fs::exists(folder + "/config.toml", error);
  const std::vector<std::string> checkpoints = checkpoint::list(folder);
  if (!checkpoints.empty()) {
    earlier.checkpoint = checkpoints.front();
    earlier.step = step_of(earlier.checkpoint);
  }
  return earlier;
}

void adopt_earlier(recipe::Resolved& resolved, const std::string& folder) {
  const std::optional<recipe::Recipe> earlier = earlier_recipe(folder);
  if (!earlier) return;
  for (const recipe::Key& key : recipe::recipe_keys()) {
    if (recipe::value_text(key, resolved.recipe) != "\"auto\"" || is_free(key.name)) continue;
    recipe::set_value(resolved.recipe, key.name, recipe::value_text(key, *earlier));
    resolved.origin[key.name] = folder + "/config.toml";
  }
}

void refuse_changes(const recipe::Resolved& resolved, const std::string& folder) {
  const std::optional<recipe::Recipe> earlier = earlier_recipe(folder);
  if (!earlier) return;
  const std::string changes = changes_since(*earlier, resolved);
  if (changes.empty()) return;
  throw base::ConfigError(
      160,
      fmt::format(
          "{} contains a run of another recipe:{}\n  Give this run its own name with run.name=NAME (and "
          "--resume {} to continue from what was learned), or start over in that folder with --resume never",
          folder, changes, folder));
}

void refuse_said_changes(const recipe::Resolved& resolved, const std::string& folder) {
  const std::optional<recipe::Recipe> earlier = earlier_recipe(folder);
  if (!earlier) return;
  recipe::Resolved said{*earlier, resolved.origin};
  for (const recipe::Key& key : recipe::recipe_keys()) {
    const std::string value = recipe::value_text(key, resolved.recipe);
    const std::string& origin = resolved.origin.at(key.name);
    // A file from `lockstep init` names every key: one with its default value is no wish.
    if (origin == "command line" || value != recipe::default_text(key))
      recipe::set_value(said.recipe, key.name, value);
  }
  refuse_changes(said, folder);
}

OwnCheckpoints checkpoints_of(const std::string& folder, const recipe::Resolved& resolved) {
  OwnCheckpoints own;
  for (const std::string& path : checkpoint::list(folder)) {
    const std::optional<recipe::Recipe> saved_with = recipe_of(path);
    const std::string changes = saved_with ? changes_since(*saved_with, resolved) : "";
    if (changes.empty()) {
      own.folders.push_back(path);
    } else {
      own.passed_over += fmt::format("{} belongs to another recipe and is skipped:{}\n", path, changes);
    }
  }
  if (!own.folders.empty()) own.step = step_of(own.folders.front());
  return own;
}

std::vector<double> recorded_losses(const std::string& folder, int64_t steps) {
  constexpr int64_t kMostBytes = int64_t{64} << 20, kMostSteps = int64_t{1} << 24;
  std::vector<double> losses;
  if (steps < 1 || steps > kMostSteps) return losses;
  for (const std::string& text :
       base::split_lines(base::try_read_file(folder + "/metrics.jsonl", kMostBytes).text)) {
    const json line = json::parse(text, nullptr, false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) continue;
    if (!line.contains("loss") || !line["loss"].is_number()) continue;
    const auto step = line["step"].get<int64_t>();
    if (step < 1 || step > steps) continue;
    losses.resize(std::max(losses.size(), static_cast<size_t>(step)), line["loss"].get<double>());
  }
  if (!losses.empty()) losses.resize(static_cast<size_t>(steps), losses.back());
  return losses;
}

void OwnCheckpoints::drop_newest() {
  folders.erase(folders.begin());
  step = folders.empty() ? 0 : step_of(folders.front());
}

bool has_saved(const std::string& folder) {
  if (checkpoint::has_saved(folder)) return true;
  std::ifstream events(folder + "/events.jsonl");
  for (std::string line; std::getline(events, line);) {
    if (line.find("\"event\":\"checkpoint_saved\"") != std::string::npos) return true;
  }
  return false;
}

namespace {

// The fields of the event "finished".
constexpr std::pair<const char*, std::optional<double> RecordedEnd::*> kEndFields[] = {
    {"loss", &RecordedEnd::loss},
    {"last_loss", &RecordedEnd::last_loss},
    {"eval_loss", &RecordedEnd::eval_loss}};

std::optional<RecordedEnd> finished_at(const std::string& folder, int64_t steps) {
  const std::vector<std::string> lines =
      base::split_lines(base::try_read_file(folder + "/events.jsonl").text);
  for (auto at = lines.rbegin(); at != lines.rend(); ++at) {
    const json line = json::parse(*at, nullptr, false);
    if (!line.is_object() || !line.contains("event") || line["event"] != "finished") continue;
    if (!line.contains("step") || line["step"] != steps || !line.contains("last_loss")) return std::nullopt;
    RecordedEnd end;
    for (const auto& [name, field] : kEndFields) {
      if (line.contains(name) && line[name].is_number()) end.*field = line[name].get<double>();
    }
    return end;
  }
  return std::nullopt;
}

}  // namespace

RecordedEnd recorded_end(const std::string& folder, int64_t steps) {
  if (const std::optional<RecordedEnd> told = finished_at(folder, steps)) return *told;
  RecordedEnd end;
  std::vector<double> losses;
  const base::ReadResult metrics = base::try_read_file(folder + "/metrics.jsonl");
  const std::vector<std::string> lines = base::split_lines(metrics.text);
  // From the end: those before the last tenth are not even parsed.
  for (auto at = lines.rbegin(); at != lines.rend(); ++at) {
    const json line = json::parse(*at, nullptr, false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) continue;
    const auto step = line["step"].get<int64_t>();
    if (step <= steps - std::max<int64_t>(1, steps / 10)) break;
    if (step > steps) continue;
    if (line.contains("loss") && line["loss"].is_number()) {
      losses.push_back(line["loss"]);
      if (step == steps) end.last_loss = losses.back();
    }
    if (step == steps && line.contains("eval_loss") && line["eval_loss"].is_number())
      end.eval_loss = line["eval_loss"].get<double>();
  }
  if (losses.empty()) return end;
  end.loss = 0;
  for (auto at = losses.rbegin(); at != losses.rend(); ++at)  // in the trainer's order
    *end.loss += *at / static_cast<double>(losses.size());
  return end;
}

RunFolder::RunFolder(std::string folder, Holder holder)
    : folder_(std::move(folder)), lock_(folder_, holder) {}

Begun RunFolder::begin(const Plan& plan, int64_t first_step, History history) {
  every_ = std::max<int64_t>(1, plan.recipe().log.every);
  remove_leftovers(folder_);
  const std::optional<recipe::Recipe> earlier =
      history == History::goes_on ? earlier_recipe(folder_) : std::nullopt;
  Begun begun;
  const json record = make_record(plan);
  if (first_step > 0) begun.changes = changes_of_record(folder_ + "/record.json", record);
  // Before anything else is written: this may be refused.
  const int64_t last = cut_lines_after(folder_ + "/metrics.jsonl", first_step);
  static_cast<void>(cut_lines_after(folder_ + "/histograms.jsonl", first_step));
  if (earlier) begun.missing = missing_lines(last, first_step, std::max<int64_t>(1, earlier->log.every));
  base::write_file_durable(folder_ + "/config.toml", recipe::write_toml(plan.recipe()));
  base::write_file_durable(folder_ + "/record.json", record.dump(2) + "\n");
  if (first_step == 0 && history == History::fresh) base::write_file_durable(folder_ + "/events.jsonl", "");
  begin_chain(plan, record, first_step, history);
  metrics_ = std::make_unique<PatientLines>(folder_ + "/metrics.jsonl");
  events_ = std::make_unique<PatientLines>(folder_ + "/events.jsonl");
  if (plan.recipe().log.histograms > 0)
    histograms_ = std::make_unique<PatientLines>(folder_ + "/histograms.jsonl");
  return begun;
}

// A run that goes on adds to the chain it has; one that starts over, or that had none, begins one.
void RunFolder::begin_chain(const Plan& plan, const json& record, int64_t first_step, History history) {
  const recipe::Recipe& recipe = plan.recipe();
  const std::string path = folder_ + "/chain.json";
  chain_.reset();
  if (!recipe.log.chain) return;
  std::optional<SigningKey> key = signing_key(base::environment(kChainKey).value_or(""));
  Genesis genesis{.recipe = recipe::write_toml(recipe),
                  .record = record.dump(),
                  .key_kind = key ? key->kind() : "",
                  .public_pem = key ? key->public_pem() : "",
                  .first_step = first_step};
  std::string link;
  if (history != History::fresh && first_step > 0 && fs::exists(path)) {
    const std::string text = base::read_file(path);
    const Genesis earlier = Genesis::from_text(text);
    if (earlier.key_kind != genesis.key_kind || earlier.public_pem != genesis.public_pem)
      throw base::ConfigError(
          337, fmt::format("the chain of {} was begun with {} key: name that one in {}, or start "
                           "over with --resume never",
                           folder_, earlier.key_kind.empty() ? "no" : "another", kChainKey));
    link = last_link(folder_ + "/metrics.jsonl");
    if (link.empty()) link = sha256_hex(text);
  } else {
    base::write_file_durable(path, genesis.to_text());
    link = sha256_hex(genesis.to_text());
  }
  chain_.emplace(std::move(link), std::move(key));
}

std::string RunFolder::unwritten() const {
  std::string text;
  for (const auto& [lines, name] : {std::pair(metrics_.get(), "metrics"), std::pair(events_.get(), "events"),
                                    std::pair(histograms_.get(), "histograms")}) {
    const size_t count = lines == nullptr ? 0 : lines->waiting() + lines->given_up();
    if (count > 0)
      text += fmt::format("{}{} line{} of {}/{}.jsonl", text.empty() ? "" : " and ", count,
                          count == 1 ? "" : "s", folder_, name);
  }
  return text;
}

void RunFolder::write(PatientLines& lines, std::string line) {
  const std::string why = lines.write(std::move(line));
  if (!why.empty() && on_trouble) on_trouble(why);
}

void RunFolder::stepped(const StepReport& r) {
  if (r.step % every_ != 0) return;
  json line{{"step", r.step}};
  line["loss"] = finite_or_text(r.loss);
  line["loss_hex"] = hex_of(r.loss);
  line["lr"] = r.learning_rate;
  line["grad_norm"] = finite_or_text(r.grad_norm);
  if (r.preference) {
    line["rewards/chosen"] = finite_or_text(r.preference->chosen);
    line["rewards/rejected"] = finite_or_text(r.preference->rejected);
    line["rewards/margins"] = finite_or_text(r.preference->margin());
    line["rewards/accuracies"] = r.preference->accuracy;
  }
  line[r.unit] = r.tokens;
  line[fmt::format("{}_per_s", r.unit)] = r.tokens_per_s;
  line["step_ms"] = r.step_ms;
  line["data_wait_ms"] = r.data_wait_ms;
  line["mfu"] = r.mfu ? json(*r.mfu) : json(nullptr);
  line["mem_gib"] = r.memory_gib;
  if (r.loss_scale != 1) line["loss_scale"] = r.loss_scale;
  if (!r.applied) line["skipped"] = true;
  if (!r.params_hash.empty()) line["params_hash"] = r.params_hash;
  if (chain_) chain_->seal(line);
  line["time"] = base::utc_timestamp();
  write(*metrics_, line.dump());
}

void RunFolder::evaluated(int64_t step, double loss) {
  json line{{"step", step}, {"eval_loss", finite_or_text(loss)}, {"eval_loss_hex", hex_of(loss)}};
  if (chain_) chain_->seal(line);
  line["time"] = base::utc_timestamp();
  write(*metrics_, line.dump());
}

void RunFolder::histogram(int64_t step, const std::string& block, const base::Histogram& gradient) {
  json line{{"step", step}, {"block", block}, {"count", gradient.count()}};
  line["smallest"] = gradient.smallest(), line["largest"] = gradient.largest();
  if (gradient.not_finite() > 0) line["not_finite"] = gradient.not_finite();
  line["edges"] = gradient.edges(), line["counts"] = gradient.counts();
  line["time"] = base::utc_timestamp();
  write(*histograms_, line.dump());
}

void RunFolder::event(const std::string& name, const std::string& why, int64_t step) {
  json line{{"event", name}, {"step", step}, {"why", why}, {"time", base::utc_timestamp()}};
  if (name == "first_step") line["seconds"] = base::seconds_since_process_start();
  for (const auto& [field, value] : kEndFields) {
    if (name == "finished" && end_.*value && std::isfinite(*(end_.*value))) line[field] = *(end_.*value);
  }
  write(*events_, line.dump());
}

}  // namespace lockstep::run
