#include "lockstep/see/dash/api.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/see/dash/curves.h"
#include "lockstep/see/dash/receipt.h"
#include "lockstep/see/ranks_now.h"
#include "lockstep/see/recipe_keys.h"
#include "lockstep/see/timeline.h"

namespace lockstep::see {

namespace {

using http::Reply;
using http::Request;
using nlohmann::json;

constexpr size_t kMostAtOnce = 100;  // runs of one question
constexpr int64_t kMostText = 1 << 20;

Reply as_json(const json& value) {
  return {.body = value.dump(-1, ' ', false, json::error_handler_t::replace),
          .headers = {{"Cache-Control", "no-store"}}};
}

Reply refusal(int status, const std::string& sentence) {
  Reply reply = as_json({{"error", sentence}});
  reply.status = status;
  return reply;
}

json number(std::optional<double> value) { return value && std::isfinite(*value) ? json(*value) : json(); }

json number_or_word(std::optional<double> value) {
  return value && std::isnan(*value) ? json("nan") : number(value);
}

json to_json(const RunSummary& run) {
  if (run.gone) return {{"name", run.name}, {"gone", true}};
  return {{"name", run.name},
          {"state", run.state},
          {"why", run.why},
          {"step", run.step},
          {"steps", run.steps},
          {"loss", number_or_word(run.loss)},
          {"eval_loss", number_or_word(run.eval_loss)},
          {"tokens_per_s", number(run.tokens_per_s)},
          {"updated", run.updated},
          {"about", run.about}};
}

json to_json(const std::vector<RunSummary>& runs) {
  json list = json::array();
  for (const RunSummary& run : runs) list.push_back(to_json(run));
  return list;
}

json to_json(const RankNow& rank) {
  return {{"rank", rank.facts.rank},
          {"pid", rank.facts.pid},
          {"alive", rank.alive},
          {"step", rank.facts.step},
          {"doing", !rank.alive                               ? "ended"
                    : rank.facts.stopped                      ? "stopped"
                    : rank.facts.phase == watch::Phase::train ? rank.facts.last
                                                              : watch::name_of(rank.facts.phase)},
          {"step_seconds", rank.step_seconds},
          {"waits", number(rank.waits)},
          {"memory", rank.memory},
          {"straggler", rank.straggler}};
}

json to_json(const Timeline& timeline) {
  json lanes = json::array();
  for (const LaneTimes& lane : timeline.lanes) {
    json spans = json::array();
    for (const TimeSpan& span : lane.spans)
      spans.push_back({span.name, span.step, std::round(span.begin * 10) / 10,
                       std::round(span.length * 10) / 10, span.open ? 1 : 0});
    lanes.push_back({{"rank", lane.rank}, {"lane", lane.name}, {"spans", std::move(spans)}});
  }
  return {{"lanes", std::move(lanes)},       {"first_step", timeline.lanes.empty() ? 0 : timeline.first_step},
          {"last_step", timeline.last_step}, {"length", timeline.length},
          {"ranks", timeline.ranks},         {"problem", timeline.problem}};
}

// The folders of checkpoints, newest last.
std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder + "/checkpoints", error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename();
    if (name.starts_with("step-") && std::filesystem::exists(at->path() / "manifest.json", error))
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

RecipeKeys keys_of(const std::string& folder) {
  return recipe_keys_of(base::try_read_file(folder + "/config.toml", kMostText).text);
}

}  // namespace

struct Api::Watched {
  explicit Watched(std::string root) : catalogue(std::move(root)) {}
  Catalogue catalogue;
  std::atomic<bool> ends{false};
  std::atomic<int64_t> asked_ns{0};  // when somebody last asked for anything

  // Looks again every second while somebody asks, and never more than a tenth of the time.
  void keep_looking() {
    constexpr double kUnused = 15, kPause = 1;  // seconds
    while (!ends) {
      const int64_t began = base::monotonic_ns();
      catalogue.scan();
      const double took = static_cast<double>(base::monotonic_ns() - began) / 1e9;
      double paused = 0;
      const auto unused = [&] {
        return static_cast<double>(base::monotonic_ns() - asked_ns) / 1e9 > kUnused;
      };
      while (!ends && (paused < std::max(kPause, 9 * took) || unused())) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        paused += 0.05;
      }
    }
  }
};

Api::Api(std::string root) : root_(root), watched_(std::make_shared<Watched>(std::move(root))) {
  catalogue_ = &watched_->catalogue;
  watched_->asked_ns = base::monotonic_ns();
  std::thread([watched = watched_] { watched->keep_looking(); }).detach();
}

Api::~Api() { watched_->ends = true; }

Reply Api::answer(const Request& request) {
  watched_->asked_ns = base::monotonic_ns();
  try {
    if (request.path == "/api/runs") return runs();
    if (request.path == "/api/live") return live();
    if (request.path == "/api/run") return run(request);
    if (request.path == "/api/series") return series(request);
    if (request.path == "/api/compare") return compare(request);
    if (request.path == "/api/timeline") return timeline(request);
  } catch (const base::Error& error) {
    return refusal(error.exit_code() == 2 ? 400 : 500, error.what());
  }
  return refusal(404, "there is nothing of that name here");
}

Reply Api::runs() {
  return as_json({{"root", root_},
                  {"runs", to_json(catalogue_->changed_since(0))},
                  {"problem", catalogue_->problem()},
                  {"crowded", catalogue_->crowded()}});
}

// Server-sent events: the runs that have changed, and what is the matter with the folder. An empty piece
// every half second shows whether the reader is still there.
Reply Api::live() {
  struct State {
    uint64_t version = 0;
    std::string status;
    int64_t spoke_ns = 0;
  };
  const auto state = std::make_shared<State>();
  const auto next = [this, state]() -> std::optional<std::string> {
    constexpr int64_t kSilence = 10'000'000'000;
    watched_->asked_ns = base::monotonic_ns();
    if (state->spoke_ns != 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::string text;
    const auto say = [&](const char* event, const json& data) {
      text += fmt::format("event: {}\ndata: {}\n\n", event,
                          data.dump(-1, ' ', false, json::error_handler_t::replace));
    };
    const uint64_t now = catalogue_->version();
    if (now != state->version || state->spoke_ns == 0) {
      say("runs", to_json(catalogue_->changed_since(state->version)));
      state->version = now;
    }
    constexpr double kLong = 5;
    const double scanning = catalogue_->scanning_seconds();
    const json status{{"root", root_},
                      {"problem", catalogue_->problem()},
                      {"crowded", catalogue_->crowded()},
                      {"reading", scanning > 0 && now == 0},
                      {"waiting_s", scanning > kLong ? std::floor(scanning) : 0}};
    if (status.dump() != state->status) say("status", status);
    state->status = status.dump();
    const int64_t at = base::monotonic_ns();
    if (text.empty() && at - state->spoke_ns > kSilence) text = ": here\n\n";
    if (!text.empty()) state->spoke_ns = at;
    return text;
  };
  return {.type = "text/event-stream", .headers = {{"Cache-Control", "no-store"}}, .stream = next};
}

Reply Api::run(const Request& request) {
  const auto found = catalogue_->find(request.value("run"));
  if (!found) return refusal(404, fmt::format("no run {} here", base::quoted(request.value("run"))));
  json all = to_json(*found);
  all["folder"] = found->folder;
  all["keys"] = json::array();
  for (const auto& [key, value] : keys_of(found->folder)) all["keys"].push_back({key, value});
  all["record"] =
      json::parse(base::try_read_file(found->folder + "/record.json", kMostText).text, nullptr, false);
  if (all["record"].is_discarded()) all["record"] = json();
  all["checkpoints"] = checkpoints_in(found->folder);
  all["profile"] = has_profile(found->folder);
  all["events"] = json::array();
  constexpr size_t kMostEvents = 500;
  const std::vector<RunEvent> events = read_events(found->folder);
  for (size_t i = events.size() > kMostEvents ? events.size() - kMostEvents : 0; i < events.size(); ++i) {
    all["events"].push_back({{"event", events[i].name},
                             {"why", events[i].why},
                             {"step", events[i].step},
                             {"time", events[i].seconds}});
  }
  RanksNow ranks_now(found->folder);
  const std::vector<RankNow> ranks = ranks_now.look();
  all["ranks"] = json::array();
  for (const RankNow& rank : ranks) all["ranks"].push_back(to_json(rank));
  const auto verdict = RanksNow::verdict(ranks);
  all["verdict"] = verdict ? json(verdict->sentence) : json();
  all["last"] = json::object();
  try {
    const auto open = open_.open(found->folder);
    const std::lock_guard lock(open->mutex);
    for (const std::string& name : open->log.rows().names()) all["last"][name] = open->log.rows().last(name);
    for (const auto& [name, word] : open->log.rows().last_words()) all["last"][name] = word;
    all["rows"] = open->log.rows().size();
    all["left_out"] = open->log.left_out();
    all["receipt"] = receipt_of(found->folder, open->log.rows());
  } catch (const base::Error& error) {
    all["problem"] = error.what();
  }
  return as_json(all);
}

Reply Api::series(const Request& request) {
  const CurvesOptions options = read_curves_options(request);
  json answer{{"metrics", json::array()},
              {"lines", json::array()},
              {"marks", json::array()},
              {"problems", json::array()}};
  std::vector<std::string> names = request.values("run");
  if (names.size() > kMostAtOnce) names.resize(kMostAtOnce);
  for (const std::string& name : names) {
    const auto found = catalogue_->find(name);
    try {
      if (!found) throw base::ConfigError(760, "there is no such run here any more");
      const auto open = open_.open(found->folder);
      const std::lock_guard lock(open->mutex);
      add_curves(name, open->log, open->events, options, answer);
    } catch (const base::Error& error) {
      answer["problems"].push_back({{"run", name}, {"why", error.what()}});
    }
  }
  return as_json(answer);
}

Reply Api::compare(const Request& request) {
  std::vector<std::string> names = request.values("run");
  if (names.size() > kMostAtOnce) names.resize(kMostAtOnce);
  std::vector<RecipeKeys> recipes;
  for (const std::string& name : names) {
    const auto found = catalogue_->find(name);
    recipes.push_back(found ? keys_of(found->folder) : RecipeKeys{});
  }
  json keys = json::array();
  for (const KeyDifference& one : differences(recipes))
    keys.push_back({{"key", one.key}, {"values", one.values}});
  return as_json({{"runs", names}, {"keys", keys}});
}

Reply Api::timeline(const Request& request) {
  const auto found = catalogue_->find(request.value("run"));
  if (!found) return refusal(404, fmt::format("no run {} here", base::quoted(request.value("run"))));
  constexpr int64_t kMostSteps = 16;
  const int64_t steps = base::parse_number(request.value("steps")).value_or(2);
  const TimelineOptions options{.steps = static_cast<int>(std::clamp<int64_t>(steps, 1, kMostSteps))};
  const bool from_profile = request.value("from") == "profile";
  json answer = to_json(from_profile ? timeline_of_profile(found->folder, options)
                                     : timeline_of_rings(found->folder, options));
  answer["from"] = from_profile ? "profile" : "marks";
  answer["profile"] = has_profile(found->folder);
  return as_json(answer);
}

}  // namespace lockstep::see
