#include "lockstep/cli/see/why_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/cli/see/why_loss.h"
#include "lockstep/see/advice.h"
#include "lockstep/see/dash/catalogue.h"
#include "lockstep/see/pace.h"
#include "lockstep/see/process_now.h"
#include "lockstep/see/ranks_now.h"
#include "lockstep/see/run_events.h"
#include "lockstep/see/run_log.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Why {
  see::RunSummary run;
  std::string verdict;            // of ranks that hang at this moment
  std::vector<LossStory> losses;  // jumps and numbers that were none, the newest few
  see::StepTime time;
  see::Pace pace;
  std::vector<see::Advice> advice;
  std::string logs;  // where the ranks of the last attempt wrote
};

// The folder of the newest attempt.
std::string newest_logs(const std::string& folder) {
  int64_t newest = -1;
  std::error_code error;
  constexpr std::string_view kAttempt = "attempt-";
  for (fs::directory_iterator at(folder + "/logs", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (name.starts_with(kAttempt))
      newest = std::max(newest, base::parse_number(name.substr(kAttempt.size())).value_or(-1));
  }
  return newest < 0 ? "" : fmt::format("{}/logs/attempt-{}", folder, newest);
}

// Marks of the last steps; where ranks of this host have left none, the profile, which has those of all.
see::Timeline newest_timeline(const std::string& folder) {
  constexpr see::TimelineOptions kOptions{.steps = 8};
  see::Timeline rings = see::timeline_of_rings(folder, kOptions);
  std::error_code error;
  const auto profiled = fs::last_write_time(folder + "/trace/profile.json", error);
  constexpr auto kRecent = std::chrono::minutes(10);
  const bool fresh = !error && fs::file_time_type::clock::now() - profiled < kRecent;
  const bool use = see::has_profile(folder) && (rings.lanes.empty() || fresh);
  return use ? see::timeline_of_profile(folder, kOptions) : rings;
}

Why look_at(const std::string& folder, bool replay) {
  see::Catalogue catalogue(folder);
  catalogue.scan();
  Why why{.run = catalogue.find(".").value_or(see::RunSummary{}),
          .verdict = {},
          .losses = {},
          .time = {},
          .pace = {},
          .advice = {},
          .logs = newest_logs(folder)};
  see::RanksNow ranks_now(folder);
  const auto ranks = ranks_now.look();
  if (const auto verdict = see::RanksNow::verdict(ranks)) why.verdict = verdict->sentence;
  std::vector<see::RunEvent> losses;
  for (const see::RunEvent& event : see::read_events(folder)) {
    if (event.name == "loss_spike" || event.name == "nonfinite" || event.name == "diverged")
      losses.push_back(event);
  }
  constexpr size_t kMostLosses = 3;
  if (losses.size() > kMostLosses) losses.erase(losses.begin(), losses.end() - kMostLosses);
  if (why.run.step > 0 && fs::exists(folder + "/metrics.jsonl")) {
    see::RunLog log(folder);
    log.poll();
    why.pace = see::pace_of(log.rows());
    for (const see::RunEvent& event : losses)
      why.losses.push_back(story_of(folder, event, log, replay && &event == &losses.back()));
  }
  constexpr int64_t kMost = 1 << 20;
  why.time = see::step_time_of(newest_timeline(folder), why.pace.data_share);
  std::vector<int> here;
  for (const see::RankNow& rank : ranks) {
    if (rank.alive && !rank.elsewhere) here.push_back(rank.facts.pid);
  }
  constexpr std::chrono::milliseconds kMeasured(500);
  why.time.starved = see::waiting_for_processors(here, kMeasured);
  why.advice = see::advice_for(why.time,
                               see::recipe_keys_of(base::try_read_file(folder + "/config.toml", kMost).text));
  return why;
}

std::string percent(double part) { return fmt::format("{:.0f} %", 100 * part); }

std::string ending_of(const Why& why) {
  const see::RunSummary& run = why.run;
  if (run.state == "failed" || run.state == "preempted") return run.why;
  if (run.state == "stopped")
    return "nothing says why it ended: it was killed, or its machine went down; running the same command "
           "again "
           "resumes it";
  return "";
}

void print_time(const see::StepTime& time) {
  std::string kinds;
  for (const auto& [kind, part] : time.kinds) {
    constexpr double kWorthAWord = 0.01;
    if (part >= kWorthAWord) kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", kind, percent(part));
  }
  print("\nwhere the time goes (step {} to {}, {} rank{} on this host, {} per step)\n", time.first_step,
        time.last_step, time.ranks.size(), time.ranks.size() == 1 ? "" : "s",
        base::human_duration(time.seconds));
  const auto row = [](const char* name, double part, const std::string& more) {
    print("  {:<24}{:>5}{}{}\n", name, percent(part), more.empty() ? "" : "   ", more);
  };
  row("computation", time.computation, kinds);
  row("exposed communication", time.communication,
      std::string("normal: below 10 %") +
          (time.hidden > 0.005 ? fmt::format("; {} more behind computation", percent(time.hidden)) : ""));
  row("waiting for data", time.data, "normal: below 5 %");
  row("nothing", time.idle, "normal: below 15 %");
  if (constexpr double kWorthARow = 0.03; time.starved >= kWorthARow)
    print("  {:<24}{:>5}   of the time that ranks want one; normal: below 10 %\n", "waiting for a processor",
          percent(time.starved));
}

void print_advice(const Why& why, size_t width) {
  print("\n{}\n", base::hanging(see::limit_of(why.time), width, 0));
  if (why.advice.empty()) return;
  print("what would help most:\n");
  for (size_t i = 0; i < why.advice.size(); ++i) {
    const see::Advice& one = why.advice[i];
    print("{}\n", base::hanging(fmt::format("  {}. {}: at most {} faster; {}", i + 1, one.change,
                                            percent(one.faster), one.why),
                                width, 3));
  }
}

json to_json(const Why& why) {
  json advice = json::array(), losses = json::array(), kinds = json::object();
  for (const see::Advice& one : why.advice)
    advice.push_back({{"change", one.change}, {"why", one.why}, {"faster", one.faster}});
  for (const LossStory& one : why.losses) losses.push_back(json_of(one));
  for (const auto& [kind, part] : why.time.kinds) kinds[kind] = part;
  json all{{"run", why.run.folder}, {"state", why.run.state}, {"step", why.run.step},
           {"why", ending_of(why)}, {"verdict", why.verdict}, {"losses", losses},
           {"logs", why.logs},      {"advice", advice}};
  if (why.time.seconds > 0) {
    all["limit"] = see::limit_of(why.time);
    all["time"] = {{"step_seconds", why.time.seconds},
                   {"computation", why.time.computation},
                   {"communication", why.time.communication},
                   {"data", why.time.data},
                   {"idle", why.time.idle},
                   {"waiting_for_processors", why.time.starved},
                   {"kinds", kinds}};
  }
  if (why.pace.slower > 0) all["slower_than_usual"] = why.pace.slower;
  return all;
}

}  // namespace

int why_run(const std::string& folder, const WhyOptions& options) {
  const Why why = look_at(folder, options.replay);
  if (options.json) {
    report_json(to_json(why), 2);
    return 0;
  }
  const terminal::Terminal screen = terminal::terminal_of(STDOUT_FILENO);
  const size_t width = screen.is_tty ? screen.width - 1 : 100;
  const auto say = [&](const std::string& text) { print("{}\n", base::hanging(text, width, 2)); };
  const std::string steps = why.run.steps > 0 ? fmt::format(" of {}", why.run.steps) : "";
  say(fmt::format("{} is {}, step {}{}", folder, why.run.state, why.run.step, steps));
  if (const std::string ending = ending_of(why); !ending.empty()) say("  " + ending);
  if (!why.verdict.empty()) say("  " + why.verdict);
  for (const LossStory& one : why.losses) {
    const bool newest = &one == &why.losses.back();
    const std::vector<std::string> lines = lines_of(one);
    for (size_t i = 0; i < (newest ? lines.size() : 1); ++i) say((i == 0 ? "  " : "    ") + lines[i]);
  }
  const bool ill = why.run.state == "failed" || why.run.state == "stopped";
  if (ill && !why.logs.empty()) say("  what its ranks printed: " + why.logs);
  if (why.pace.slower > 0)
    say(fmt::format("  its last steps take {:.1f} times as long as was usual in this run ({} instead of {})",
                    why.pace.slower, base::human_duration(why.pace.lately),
                    base::human_duration(why.pace.usual)));
  if (why.time.seconds > 0) {
    print_time(why.time);
    print_advice(why, width);
  } else {
    say("  no rank on this host has left marks of a whole step: where its time goes is not known here");
  }
  return 0;
}

}  // namespace lockstep::cli
