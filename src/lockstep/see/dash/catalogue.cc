#include "lockstep/see/dash/catalogue.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "lockstep/base/clock.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/see/process_now.h"
#include "lockstep/see/ranks_now.h"
#include "lockstep/see/recipe_keys.h"
#include "lockstep/see/run_events.h"
#include "lockstep/see/run_log.h"
#include "lockstep/see/valid_text.h"

namespace lockstep::see {

namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 3;
constexpr size_t kMostRuns = 20000;
constexpr int64_t kTailBytes = 16 << 10;
constexpr double kRecent = 60;  // seconds: a run that writes nothing for longer is looked at more closely

struct FileState {
  int64_t size = -1, time = 0;  // nanoseconds; -1: there is none
};
FileState state_of(const std::string& path) {
  struct stat now {};
  if (::stat(path.c_str(), &now) != 0) return {};
  return {now.st_size, now.st_mtim.tv_sec * int64_t{1'000'000'000} + now.st_mtim.tv_nsec};
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The newest numbers, from the end of metrics.jsonl.
void take_metrics(RunSummary& run) {
  const auto lines = base::split_lines(read_tail(run.folder + "/metrics.jsonl", kTailBytes));
  run.loss.reset(), run.eval_loss.reset(), run.tokens_per_s.reset();
  run.step = 0;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const std::optional<LogRow> row = parse_row(*line);
    if (!row) continue;
    run.step = std::max(run.step, row->step);
    run.updated = std::max(run.updated, row->seconds);
    for (const auto& [name, value] : row->values) {
      if (name == "loss" && !run.loss) run.loss = value;
      if (name == "eval_loss" && !run.eval_loss) run.eval_loss = value;
      if (name == "tokens_per_s" && !run.tokens_per_s) run.tokens_per_s = value;
    }
    // It has none now, whatever it was before.
    for (const auto& [name, word] : row->words) {
      if (name == "loss" && !run.loss) run.loss = std::nan("");
      if (name == "eval_loss" && !run.eval_loss) run.eval_loss = std::nan("");
    }
  }
}

void take_recipe(RunSummary& run) {
  constexpr int64_t kMost = 1 << 20;
  const RecipeKeys keys = recipe_keys_of(base::try_read_file(run.folder + "/config.toml", kMost).text);
  run.steps = base::parse_number(value_of(keys, "run.steps")).value_or(0);
  std::vector<std::string> words;
  const auto say = [&](const char* key, const char* before) {
    const std::string value = value_of(keys, key);
    if (!value.empty() && value != "none") words.push_back(before + value.substr(0, 80));
  };
  say("model.preset", ""), say("model.family", ""), say("data.kind", "");
  say("optim.name", ""), say("optim.lr", "lr "), say("batch.global", "batch "), say("precision.compute", "");
  run.about = base::join(words, ", ");
}

// Whoever had the run's lock last (base::FolderLock: "process 4711 on host7") was a process of this host and
// has ended. Its ranks end with it, so nothing of the run is left.
bool holder_has_ended(const std::string& folder) {
  constexpr int64_t kMost = 4096;
  const std::string text = base::try_read_file(folder + "/.lock", kMost).text;
  constexpr std::string_view kProcess = "process ", kOn = " on ";
  const size_t on = text.find(kOn);
  if (!text.starts_with(kProcess) || on == std::string::npos) return false;
  const auto pid = base::parse_number<int>(text.substr(kProcess.size(), on - kProcess.size()));
  const bool here = base::trimmed(text.substr(on + kOn.size())) == base::host_name();
  return here && pid && !process_now(*pid);
}

void take_state(RunSummary& run) {
  constexpr int64_t kEnd = 8 << 10;
  const std::vector<RunEvent> events = read_events(run.folder, kEnd);
  run.why.clear();
  if (!events.empty()) {
    run.updated = std::max(run.updated, events.back().seconds);
    if (run.step == 0) run.step = events.back().step;
    // Anything later than an ending means that it runs again.
    if (const std::string ending = ending_of(events.back().name); !ending.empty()) {
      run.state = ending;
      if (run.state != "finished") run.why = events.back().why;
      if (run.state != "failed") return;
    }
  }
  const bool recent = run.why.empty() && seconds_now() - run.updated < kRecent &&
                      !holder_has_ended(run.folder);  // maybe on another host, or between two attempts
  const bool lives = recent || lives_here(run.folder);
  if (lives) {
    run.state = run.step > 0 ? "training" : "starting";
  } else if (run.why.empty()) {
    run.state = "stopped";
  }
}

}  // namespace

Catalogue::Catalogue(std::string root) : root_(std::move(root)) {}

void Catalogue::look_into(const std::string& folder, const std::string& name, int depth,
                          std::vector<std::string>& found) {
  std::error_code error;
  if (fs::exists(folder + "/metrics.jsonl", error) || fs::exists(folder + "/config.toml", error)) {
    found.push_back(name);
    return;
  }
  if (depth == kDeepest) return;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (found.size() >= kMostRuns) return;
    const std::string child = at->path().filename();
    std::error_code none;
    if (!child.starts_with('.') && at->is_directory(none))
      look_into(at->path(), name.empty() ? child : name + "/" + child, depth + 1, found);
  }
  if (error && depth == 0) {
    const std::lock_guard lock(mutex_);
    problem_ = error.message();
  }
}

// Reads what has changed of one run; the map's entry is this thread's to read.
void Catalogue::look_at(const std::string& name) {
  Seen seen;
  {
    const std::lock_guard lock(mutex_);
    seen = runs_[name];
  }
  RunSummary run = seen.summary;
  if (run.folder.empty()) {
    run.folder = name == "." ? root_ : root_ + "/" + name;
    run.name = name;
  }
  const FileState metrics = state_of(run.folder + "/metrics.jsonl");
  const FileState config = state_of(run.folder + "/config.toml");
  const FileState events = state_of(run.folder + "/events.jsonl");
  const bool wrote = metrics.size != seen.metrics_size || metrics.time != seen.metrics_time;
  const bool told = wrote || events.size != seen.events_size || seen.summary.version == 0;
  if (wrote) take_metrics(run);
  if (config.time != seen.config_time) take_recipe(run);
  const bool unsure = run.state == "training" || run.state == "starting" || run.state == "failed";
  if (told || unsure) take_state(run);
  run.gone = false;

  const std::lock_guard lock(mutex_);
  Seen& entry = runs_[name];
  const bool changed = told || config.time != seen.config_time || run.state != entry.summary.state ||
                       entry.summary.gone || entry.summary.version == 0;
  entry = {.summary = std::move(run),
           .metrics_size = metrics.size,
           .metrics_time = metrics.time,
           .config_time = config.time,
           .events_size = events.size,
           .present = true};
  if (changed) entry.summary.version = ++version_;
}

void Catalogue::scan() {
  {
    const std::lock_guard lock(mutex_);
    scan_began_ns_ = base::monotonic_ns();
    problem_.clear();
    for (auto& [name, seen] : runs_) seen.present = false;
  }
  std::vector<std::string> found;
  look_into(root_, "", 0, found);
  for (const std::string& name : found) look_at(name.empty() ? "." : name);
  const std::lock_guard lock(mutex_);
  for (auto& [name, seen] : runs_) {
    if (seen.present || seen.summary.gone) continue;
    seen.summary.gone = true;
    seen.summary.version = ++version_;
    seen.metrics_size = seen.events_size = -1, seen.config_time = 0;
  }
  crowded_ = found.size() >= kMostRuns;
  scan_began_ns_ = 0;
}

std::vector<RunSummary> Catalogue::changed_since(uint64_t version) const {
  const std::lock_guard lock(mutex_);
  std::vector<RunSummary> changed;
  for (const auto& [name, seen] : runs_) {
    if (seen.summary.version > version && (version > 0 || !seen.summary.gone))
      changed.push_back(seen.summary);
  }
  return changed;
}

uint64_t Catalogue::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

std::optional<RunSummary> Catalogue::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  auto run = runs_.find(name);
  // A name that is no UTF-8 has reached the page, and comes back from it, repaired.
  if (run == runs_.end() && name.find("\xef\xbf\xbd") != std::string::npos)
    run = std::ranges::find_if(runs_, [&](const auto& one) { return valid_text(one.first) == name; });
  if (run == runs_.end() || run->second.summary.gone || run->second.summary.version == 0) return std::nullopt;
  return run->second.summary;
}

double Catalogue::scanning_seconds() const {
  const std::lock_guard lock(mutex_);
  return scan_began_ns_ == 0 ? 0 : static_cast<double>(base::monotonic_ns() - scan_began_ns_) / 1e9;
}

std::string Catalogue::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

bool Catalogue::crowded() const {
  const std::lock_guard lock(mutex_);
  return crowded_;
}

}  // namespace lockstep::see
