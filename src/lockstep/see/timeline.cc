#include "lockstep/see/timeline.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/see/ranks_now.h"
#include "lockstep/watch/facts.h"

namespace lockstep::see {

namespace {

using base::RingEntry;
using nlohmann::json;

constexpr const char* kWaits = "waits in collectives";
constexpr const char* kUnknownLane = "other programs";  // an evaluation's

struct RankMarks {
  int rank = 0;
  std::vector<RingEntry> marks;
  watch::Names names;
  bool whole = false;  // the ring has not come round: its oldest step is complete
};

// Steps only go up, but for evaluations, whose marks have step 0. Lanes may be a step ahead of each other.
void leave_out_evaluations(std::vector<RingEntry>& marks) {
  int64_t newest = 0;
  std::erase_if(marks, [&](const RingEntry& mark) {
    newest = std::max(newest, mark.stamp.step);
    return mark.stamp.step < newest - 1;
  });
}

std::vector<RankMarks> read_marks(const std::string& folder, int most) {
  constexpr int64_t kMostNames = 64 << 20;
  std::vector<RankMarks> all;
  for (const int rank : ranks_with_marks(folder)) {
    if (static_cast<int>(all.size()) == most) break;
    try {
      const base::RingReader ring(watch::ring_path(folder, rank));
      RankMarks one{.rank = rank, .marks = ring.entries(), .names = {}, .whole = false};
      one.whole = one.marks.size() < ring.capacity();
      leave_out_evaluations(one.marks);
      one.names = watch::read_names(base::try_read_file(watch::names_path(folder, rank), kMostNames).text);
      if (one.names.pid != ring.pid()) one.names = {};
      all.push_back(std::move(one));
    } catch (const base::Error&) {
      // It is being written.
    }
  }
  return all;
}

// Steps that are in the ring from their first instruction to their last: all but the oldest mark's, once the
// ring has come round.
std::set<int64_t> complete_steps(const RankMarks& rank) {
  std::set<int64_t> steps;
  for (const RingEntry& mark : rank.marks) {
    if (!watch::is_collective(mark)) steps.insert(mark.stamp.step);
  }
  if (!rank.whole && !rank.marks.empty()) steps.erase(rank.marks.front().stamp.step);
  for (const RingEntry& mark : rank.marks) {
    if (mark.finished_ns == 0) steps.erase(mark.stamp.step);
  }
  return steps;
}

// The newest steps that all ranks have completely; where there are none (a long step), all that is there.
std::set<int64_t> chosen_steps(const std::vector<RankMarks>& ranks, int wanted) {
  std::map<int64_t, size_t> met;
  for (const RankMarks& rank : ranks) {
    for (const int64_t step : complete_steps(rank)) ++met[step];
  }
  std::set<int64_t> chosen;
  for (auto step = met.rbegin(); step != met.rend() && static_cast<int>(chosen.size()) < wanted; ++step) {
    if (step->second == ranks.size()) chosen.insert(step->first);
  }
  if (!chosen.empty()) return chosen;
  for (const RankMarks& rank : ranks) {
    for (const RingEntry& mark : rank.marks) chosen.insert(mark.stamp.step);
  }
  return chosen;
}

void add_rank(const RankMarks& rank, const std::set<int64_t>& steps, Timeline& timeline) {
  int64_t newest = 0;
  for (const RingEntry& mark : rank.marks)
    newest = std::max({newest, mark.enqueued_ns, mark.started_ns, mark.finished_ns});
  std::map<std::string, LaneTimes> lanes;
  for (const RingEntry& mark : rank.marks) {
    if (!steps.contains(mark.stamp.step) || mark.started_ns == 0) continue;
    const watch::MarkTitle title = watch::title_of(mark, rank.names);
    const std::string lane = watch::is_collective(mark) ? kWaits
                             : title.lane.empty()       ? kUnknownLane
                                                        : title.lane;
    const int64_t end = mark.finished_ns != 0 ? mark.finished_ns : newest;
    lanes[lane].spans.push_back(
        {.name = title.text,
         .step = mark.stamp.step + 1,
         .begin = static_cast<double>(mark.started_ns) / 1e3,
         .length = static_cast<double>(std::max<int64_t>(0, end - mark.started_ns)) / 1e3,
         .open = mark.finished_ns == 0});
  }
  for (auto& [name, lane] : lanes) {
    lane.rank = rank.rank, lane.name = name;
    timeline.lanes.push_back(std::move(lane));
  }
}

// Times from the earliest span; spans of a lane in their order; computation first.
void put_in_order(Timeline& timeline) {
  double first = 1e300, last = 0;
  timeline.first_step = INT64_MAX;
  for (const LaneTimes& lane : timeline.lanes) {
    for (const TimeSpan& span : lane.spans) {
      first = std::min(first, span.begin), last = std::max(last, span.begin + span.length);
      timeline.first_step = std::min(timeline.first_step, span.step);
      timeline.last_step = std::max(timeline.last_step, span.step);
    }
  }
  const auto place = [](const LaneTimes& lane) {
    const int order = lane.name == "compute" ? 0 : lane.name == kWaits ? 2 : 1;
    return std::tuple(lane.rank, order, lane.name);
  };
  std::sort(timeline.lanes.begin(), timeline.lanes.end(),
            [&](const LaneTimes& a, const LaneTimes& b) { return place(a) < place(b); });
  for (LaneTimes& lane : timeline.lanes) {
    for (TimeSpan& span : lane.spans) span.begin -= first;
    std::sort(lane.spans.begin(), lane.spans.end(),
              [](const TimeSpan& a, const TimeSpan& b) { return a.begin < b.begin; });
  }
  timeline.length = std::max(0.0, last - first);
}

// Events of Chrome's trace format; lanes are the threads whose name begins with "lane ".
void take_events(const json& events, const TimelineOptions& options, Timeline& timeline) {
  std::map<std::pair<int, int>, std::string> names;
  std::set<int64_t> ranks, steps;
  for (const json& event : events) {
    const int rank = event.value("pid", 0), row = event.value("tid", 0);
    ranks.insert(rank);
    if (event.value("name", "") == "thread_name") names[{rank, row}] = event.at("args").value("name", "");
    if (event.contains("args") && event["args"].contains("step"))
      steps.insert(event["args"].value("step", 0));
  }
  while (static_cast<int>(steps.size()) > options.steps) steps.erase(steps.begin());
  timeline.ranks = static_cast<int>(ranks.size());
  std::map<std::pair<int, std::string>, LaneTimes> lanes;
  for (const json& event : events) {
    if (event.value("ph", "") != "X" || !event.contains("args")) continue;
    const int rank = event.value("pid", 0);
    const int64_t step = event["args"].value("step", int64_t{0});
    constexpr std::string_view kLane = "lane ";
    const std::string& name = names[{rank, event.value("tid", 0)}];
    if (!steps.contains(step) || !name.starts_with(kLane) || rank >= options.most_ranks) continue;
    LaneTimes& lane = lanes[{rank, name}];
    lane.rank = rank, lane.name = name.substr(kLane.size());
    lane.spans.push_back({.name = event.value("name", ""),
                          .step = step,
                          .begin = event.value("ts", 0.0),
                          .length = event.value("dur", 0.0)});
  }
  for (auto& [key, lane] : lanes) timeline.lanes.push_back(std::move(lane));
}

std::string profile_path(const std::string& folder) { return folder + "/trace/profile.json"; }

}  // namespace

Timeline timeline_of_rings(const std::string& folder, const TimelineOptions& options) {
  Timeline timeline;
  const std::vector<RankMarks> ranks = read_marks(folder, options.most_ranks);
  timeline.ranks = static_cast<int>(ranks_with_marks(folder).size());
  const std::set<int64_t> steps = chosen_steps(ranks, options.steps);
  for (const RankMarks& rank : ranks) add_rank(rank, steps, timeline);
  if (timeline.lanes.empty())
    timeline.problem = "no rank of this run has left marks on this host: it has not started here";
  put_in_order(timeline);
  return timeline;
}

bool has_profile(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(profile_path(folder), error);
}

Timeline timeline_of_profile(const std::string& folder, const TimelineOptions& options) {
  constexpr int64_t kMost = 128 << 20;
  Timeline timeline;
  const base::ReadResult file = base::try_read_file(profile_path(folder), kMost);
  timeline.problem = file.problem.empty() ? "" : "trace/profile.json: " + file.problem;
  const json all = json::parse(file.text, nullptr, false);
  try {
    if (timeline.problem.empty()) take_events(all.at("traceEvents"), options, timeline);
  } catch (const json::exception&) {
    timeline.lanes.clear();
  }
  if (timeline.lanes.empty() && timeline.problem.empty())
    timeline.problem = "trace/profile.json holds no step of a run; open it at ui.perfetto.dev instead";
  put_in_order(timeline);
  return timeline;
}

}  // namespace lockstep::see
