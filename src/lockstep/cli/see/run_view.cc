#include "lockstep/cli/see/run_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/see/patiently.h"
#include "lockstep/see/recipe_keys.h"

namespace lockstep::cli {

namespace fs = std::filesystem;

std::string run_folder_named(const std::string& name) {
  for (const std::string& folder : {name, "runs/" + name}) {
    const bool is_one = see::patiently(folder, [folder] {
      constexpr const char* kFiles[] = {"/metrics.jsonl", "/config.toml", "/events.jsonl"};
      return std::ranges::any_of(kFiles, [&](const char* file) {
        std::error_code error;
        return fs::exists(folder + file, error);
      });
    });
    if (is_one) return folder;
  }
  return "";
}

std::vector<std::string> run_folders_named(std::vector<std::string> names) {
  for (std::string& name : names) {
    if (const std::string folder = run_folder_named(name); !folder.empty()) name = folder;
  }
  return names;
}

namespace {

std::string newest_run() {
  std::string newest;
  fs::file_time_type when = fs::file_time_type::min();
  std::error_code error;
  for (fs::directory_iterator at("runs", error), end; !error && at != end; at.increment(error)) {
    std::error_code none;
    const auto written = fs::last_write_time(at->path() / "metrics.jsonl", none);
    if (!none && written > when) when = written, newest = at->path().string();
  }
  return newest;
}

}  // namespace

std::string wanted_run(const std::string& name, const std::string& command) {
  if (!name.empty()) {
    const std::string folder = run_folder_named(name);
    if (!folder.empty()) return folder;
    throw base::ConfigError(109, fmt::format("{} is no run folder and no run in runs/; name one: lockstep {} "
                                             "runs/first",
                                             base::quoted(name), command));
  }
  const std::string newest = see::patiently("runs", newest_run);
  if (newest.empty())
    throw base::ConfigError(
        109, fmt::format("there is no run in \"runs\"; name a run folder: lockstep {} runs/first", command));
  return newest;
}

int64_t steps_wanted(const std::string& folder) {
  constexpr int64_t kMost = int64_t{1} << 20;
  const see::RecipeKeys keys = see::recipe_keys_of(base::try_read_file(folder + "/config.toml", kMost).text);
  return base::parse_number(see::value_of(keys, "run.steps")).value_or(0);
}

std::string progress_text(const see::RunLog& log, int64_t steps, bool trains) {
  const see::MetricTable& rows = log.rows();
  const int64_t step = rows.empty() ? 0 : rows.step(rows.size() - 1);
  std::string line = fmt::format("step {}", step);
  if (steps > 0) line += fmt::format("/{}", steps);
  if (const std::string word = rows.last_word("loss"); !word.empty())
    line += "  loss " + word;
  else if (const double loss = rows.last("loss"); !std::isnan(loss))
    line += fmt::format("  loss {:.4f}", loss);
  if (const double speed = rows.last("tokens_per_s"); speed > 0)
    line += fmt::format("  {} tokens/s", base::human_count(speed));
  const double step_ms = rows.last("step_ms");
  if (trains && steps > step && step_ms > 0)
    line += fmt::format("  ETA {}", base::human_duration(static_cast<double>(steps - step) * step_ms / 1e3));
  return line;
}

}  // namespace lockstep::cli
