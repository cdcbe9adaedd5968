// lockstep profile: asks a run in flight for a profile of a few steps, waits for it, and shows where they
// went.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/see/ranks_now.h"
#include "lockstep/see/run_events.h"
#include "lockstep/see/step_time.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

using nlohmann::json;

constexpr int64_t kMostSteps = 1000;

std::vector<see::RunEvent> profile_events(const std::string& folder) {
  std::vector<see::RunEvent> found;
  for (const see::RunEvent& event : see::read_events(folder)) {
    if (event.name == "profiled" || event.name == "no_profile") found.push_back(event);
  }
  return found;
}

bool trains(see::RanksNow& ranks) {
  const auto all = ranks.look();
  return std::any_of(all.begin(), all.end(), [](const see::RankNow& one) { return one.alive; });
}

// What the run answered. ConfigError 765: it does not train here, or gave no answer in time.
see::RunEvent ask(const std::string& folder, int64_t steps, double patience) {
  see::RanksNow ranks(folder);
  if (!trains(ranks))
    throw base::ConfigError(
        765, fmt::format("{} does not train on this host, so it cannot be profiled; profile it "
                         "from its first step on with `lockstep train ... --profile 10:12`",
                         folder));
  const size_t before = profile_events(folder).size();
  const std::string wanted = folder + "/trace/wanted.json";
  base::write_file_durable(wanted, json{{"steps", steps}}.dump() + "\n");
  const auto began = std::chrono::steady_clock::now();
  while (true) {
    const std::vector<see::RunEvent> events = profile_events(folder);
    if (events.size() > before) return events.back();
    const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (waited > patience || !trains(ranks)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ::unlink(wanted.c_str());
  throw base::ConfigError(
      765, fmt::format("{} has not answered within {}: it ended, or its steps are longer; wait "
                       "longer with --timeout",
                       folder, base::human_duration(patience)));
}

struct Kind {
  double seconds = 0;
  int64_t calls = 0;
};

// Of the compute lane and the others, by the instruction's first word; seconds of a step of one rank.
std::map<std::pair<std::string, std::string>, Kind> kinds_of(const see::Timeline& timeline) {
  std::map<std::pair<std::string, std::string>, Kind> kinds;
  const auto steps = static_cast<double>(timeline.last_step - timeline.first_step + 1);
  const double shares = steps * std::max(1, timeline.ranks);
  for (const see::LaneTimes& lane : timeline.lanes) {
    for (const see::TimeSpan& span : lane.spans) {
      Kind& kind = kinds[{lane.name, span.name.substr(0, span.name.find(' '))}];
      kind.seconds += span.length / 1e6 / shares;
      ++kind.calls;
    }
  }
  return kinds;
}

json to_json(const std::string& folder, const see::Timeline& timeline) {
  json rows = json::array();
  for (const auto& [name, kind] : kinds_of(timeline))
    rows.push_back({{"lane", name.first},
                    {"instruction", name.second},
                    {"step_ms", 1e3 * kind.seconds},
                    {"calls", kind.calls}});
  return {{"run", folder},
          {"trace", folder + "/trace/profile.json"},
          {"first_step", timeline.first_step},
          {"last_step", timeline.last_step},
          {"ranks", timeline.ranks},
          {"kinds", rows}};
}

void show(const see::Timeline& timeline) {
  const auto kinds = kinds_of(timeline);
  std::vector<std::pair<std::pair<std::string, std::string>, Kind>> rows(kinds.begin(), kinds.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  terminal::Table table({"lane", "instruction", "per step", "calls"});
  table.align_right(2), table.align_right(3);
  for (const auto& [name, kind] : rows)
    table.add({name.first, name.second, base::human_duration(kind.seconds), std::to_string(kind.calls)});
  print("{}", table.to_text(terminal::terminal_of(STDOUT_FILENO)));
}

}  // namespace

int profile_command(Arguments& arguments) {
  std::string run;
  int64_t steps = 3;
  double patience = 120;
  bool as_json = false;
  arguments.positional("RUN", run, "a run that trains on this host; default: the newest in runs/");
  arguments.option("--steps", steps, "how many steps to profile, as soon as possible");
  arguments.option("--timeout", patience, "seconds to wait for them");
  arguments.flag("--json", as_json, "print JSON");
  arguments.example("lockstep profile runs/first --steps 3",
                    "three steps of a run in flight, which goes on training");
  arguments.example("lockstep why runs/first", "then says what limits it, from that profile");
  if (!arguments.parse()) return 0;
  if (steps < 1 || steps > kMostSteps)
    throw base::ConfigError(109, fmt::format("--steps {}: expected 1 to {}", steps, kMostSteps));
  const std::string folder = wanted_run(run, "profile");
  const see::RunEvent answer = ask(folder, steps, patience);
  if (answer.name == "no_profile")
    throw base::ConfigError(765, fmt::format("{} cannot be profiled: {}", folder, answer.why));
  const see::Timeline timeline =
      see::timeline_of_profile(folder, {.steps = static_cast<int>(steps), .most_ranks = 1 << 16});
  if (as_json) {
    report_json(to_json(folder, timeline));
    return 0;
  }
  print("profiled {}\n\n", answer.why);
  show(timeline);
  remark("open {}/trace/profile.json in ui.perfetto.dev; `lockstep why {}` says what would help\n", folder,
         folder);
  return 0;
}

}  // namespace lockstep::cli
