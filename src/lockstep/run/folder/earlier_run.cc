#include "lockstep/run/folder/earlier_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/usable.h"

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

// Keys that are not free and differ, one a line.
std::string changes_since(const recipe::Recipe& earlier, const recipe::Resolved& now) {
  std::string changes;
  for (const std::string& name : recipe::differing_keys(now.recipe, earlier)) {
    const recipe::Key* key = recipe::find_key(name);
    const std::string was = recipe::value_text(*key, earlier);
    // The version that wrote this did not have the key; what "auto" comes to is what it did.
    if (is_free(name) || is_length(name) || (was == "\"auto\"" && !recipe::is_chosen(now, *key))) continue;
    changes += fmt::format("\n    {}: was {}, is {}", name, was, recipe::value_text(*key, now.recipe));
  }
  return changes;
}

// "checkpoints/step-00000100": 100.
int64_t step_of(const std::string& checkpoint) {
  const std::string name = fs::path(checkpoint).filename();
  return base::leading_number(std::string_view(name).substr(name.find('-') + 1)).value_or(0);
}

// A whole one names every key.
recipe::Recipe read_config(const std::string& path) {
  recipe::Recipe read = recipe::read_recipe({.file = path, .overrides = {}}).recipe;
  if (base::trimmed(base::read_file(path)).empty())
    throw base::ConfigError(105, path + " is empty; restore it, or start over with --resume never");
  return read;
}

// Of the newest checkpoint that says it, which holds a copy of config.toml.
std::optional<recipe::Recipe> saved_recipe(const std::string& folder) {
  for (const std::string& one : checkpoint::list(folder)) {
    if (std::optional<recipe::Recipe> recipe = recipe_of(one)) return recipe;
  }
  return std::nullopt;
}

}  // namespace

std::optional<recipe::Recipe> earlier_recipe(const std::string& folder) {
  const std::string path = folder + "/config.toml";
  std::error_code error;  // a name that leads nowhere is told by who reads it
  if (!fs::exists(path, error) && !error) return std::nullopt;
  try {
    return read_config(path);
  } catch (const base::ConfigError&) {
    refuse_newer(folder);  // has keys that this version does not know
    if (std::optional<recipe::Recipe> saved = saved_recipe(folder)) return saved;
    throw;
  }
}

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
  if (!earlier.exists) return earlier;
  try {
    read_config(folder + "/config.toml");
  } catch (const base::ConfigError& damage) {
    if (saved_recipe(folder))
      earlier.damage = std::string(damage.what()) + "; using the recipe of the newest checkpoint";
  } catch (const base::Error&) {
    // Whoever needs it says that it cannot be read.
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

void refuse_said_changes(const recipe::Resolved& said, const recipe::Resolved& alone,
                         const std::string& folder) {
  const std::optional<recipe::Recipe> earlier = earlier_recipe(folder);
  if (!earlier) return;
  recipe::Resolved now{*earlier, said.origin};
  for (const recipe::Key& key : recipe::recipe_keys()) {
    if (recipe::value_text(key, said.recipe) != "\"auto\"")
      recipe::set_value(now.recipe, key.name, recipe::value_text(key, alone.recipe));
  }
  refuse_changes(now, folder);
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

bool tells_its_end(const std::string& folder, int64_t steps) {
  std::ifstream events(folder + "/events.jsonl");
  bool tells = false;
  for (std::string text; std::getline(events, text);) {
    const json line = json::parse(text, nullptr, false);
    if (!line.is_object() || !line.contains("event") || !line.contains("step")) continue;
    tells = true;
    if (line["event"] == "finished" && line["step"] == steps) return true;
  }
  return !tells;
}

namespace {

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

}  // namespace lockstep::run
