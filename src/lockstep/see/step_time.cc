#include "lockstep/see/step_time.h"

#include <algorithm>
#include <map>

#include "lockstep/base/stretches.h"

namespace lockstep::see {

namespace {

using base::joined;
using base::length;
using base::length_of_both;
using base::Stretch;  // microseconds

struct Spans {
  std::vector<Stretch> computes, communicates, loads;
  std::map<std::string, double> kinds;
  double first = 1e300, last = 0;

  void add(const LaneTimes& lane) {
    for (const TimeSpan& span : lane.spans) {
      const Stretch stretch{span.begin, span.begin + span.length};
      first = std::min(first, stretch.first), last = std::max(last, stretch.second);
      if (lane.name == "compute") {
        computes.push_back(stretch);
        kinds[kind_of(span.name)] += span.length;
      } else if (span.name.starts_with("load")) {
        loads.push_back(stretch);
      } else if (lane.name != "host") {
        communicates.push_back(stretch);
      }
    }
  }
};

}  // namespace

std::string kind_of(const std::string& instruction) {
  const std::string verb = instruction.substr(0, instruction.find(' '));
  return verb.starts_with("backward") ? "backward" : verb;
}

StepTime step_time_of(const Timeline& timeline, double data_share) {
  StepTime time{.first_step = timeline.first_step, .last_step = timeline.last_step, .kinds = {}, .ranks = {}};
  std::map<int, Spans> ranks;
  for (const LaneTimes& lane : timeline.lanes) ranks[lane.rank].add(lane);
  const auto steps = static_cast<double>(timeline.last_step - timeline.first_step + 1);
  double all = 0, computes = 0, hidden = 0, communicates = 0, loads = 0;
  std::map<std::string, double> kinds;
  for (auto& [rank, spans] : ranks) {
    const double window = spans.last - spans.first;
    if (window <= 0) continue;
    const auto busy = joined(std::move(spans.computes)), moves = joined(std::move(spans.communicates));
    const double beside = length_of_both(busy, moves), exposed = length(moves) - beside;
    std::vector<Stretch> either = busy;
    either.insert(either.end(), moves.begin(), moves.end());
    const auto waits = joined(std::move(spans.loads));
    all += window, computes += length(busy), hidden += beside, communicates += exposed;
    loads += length(waits) - length_of_both(joined(std::move(either)), waits);
    for (const auto& [kind, sum] : spans.kinds) kinds[kind] += sum;
    time.ranks.push_back({rank, length(busy) / steps / 1e6, exposed / steps / 1e6});
  }
  if (all <= 0) return time;
  time.seconds = all / static_cast<double>(time.ranks.size()) / steps / 1e6;
  time.computation = computes / all, time.communication = communicates / all, time.hidden = hidden / all;
  const double rest = std::max(0.0, 1 - time.computation - time.communication);
  time.data = std::min(rest, std::max(loads / all, data_share));
  time.idle = rest - time.data;
  double sum = 0;  // instructions of a lane may overlap by a hair
  for (const auto& [kind, one] : kinds) sum += one;
  for (const auto& [kind, one] : kinds) time.kinds.emplace_back(kind, time.computation * one / sum);
  std::sort(time.kinds.begin(), time.kinds.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  return time;
}

const RankTime* slowest_rank(const StepTime& time) {
  constexpr double kMuch = 0.15;  // of a step
  if (time.ranks.size() < 2) return nullptr;
  const auto median = [&](double RankTime::*member) {
    std::vector<double> all;
    for (const RankTime& rank : time.ranks) all.push_back(rank.*member);
    std::sort(all.begin(), all.end());
    return (all[(all.size() - 1) / 2] + all[all.size() / 2]) / 2;
  };
  const auto slowest =
      std::max_element(time.ranks.begin(), time.ranks.end(),
                       [](const RankTime& a, const RankTime& b) { return a.computation < b.computation; });
  const double longer = slowest->computation - median(&RankTime::computation);
  const double waits_less = median(&RankTime::communication) - slowest->communication;
  return longer > kMuch * time.seconds && waits_less > kMuch * time.seconds ? &*slowest : nullptr;
}

}  // namespace lockstep::see
