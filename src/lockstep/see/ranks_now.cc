#include "lockstep/see/ranks_now.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/see/process_now.h"

namespace lockstep::see {

namespace fs = std::filesystem;

std::vector<int> ranks_with_marks(const std::string& folder) {
  std::vector<int> ranks;
  std::error_code error;
  for (fs::directory_iterator at(folder + "/trace", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    int rank = 0, read = 0;
    if (std::sscanf(name.c_str(), "rank-%d.ring%n", &rank, &read) == 1 &&
        name.size() == static_cast<size_t>(read))
      ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::optional<double> waiting_share(const std::vector<base::RingEntry>& marks) {
  int64_t first = 0, last = 0, waited = 0;
  for (const base::RingEntry& mark : marks) {
    if (mark.started_ns == 0 || mark.finished_ns == 0) continue;
    if (first == 0) first = mark.started_ns;
    last = std::max(last, mark.finished_ns);
    if (mark.stamp.group >= 0) waited += mark.finished_ns - mark.started_ns;
  }
  if (last <= first) return std::nullopt;
  return std::min(1.0, static_cast<double>(waited) / static_cast<double>(last - first));
}

// Where ranks wait for each other, the one that waits least is the one they wait for.
void mark_stragglers(std::vector<RankNow>& ranks) {
  constexpr double kMuchLess = 0.15;  // of the time
  std::vector<double> all;
  for (const RankNow& rank : ranks) {
    if (rank.alive && rank.waits) all.push_back(*rank.waits);
  }
  if (all.size() < 2) return;
  std::sort(all.begin(), all.end());
  const double median = (all[(all.size() - 1) / 2] + all[all.size() / 2]) / 2;
  for (RankNow& rank : ranks) rank.straggler = rank.alive && rank.waits && *rank.waits < median - kMuchLess;
}

std::vector<RankNow> RanksNow::look() {
  std::vector<RankNow> ranks;
  for (const int rank : ranks_with_marks(folder_)) {
    RankNow now;
    int pid = 0;
    try {
      const base::RingReader ring(watch::ring_path(folder_, rank));
      pid = ring.pid();
      now.waits = waiting_share(ring.entries());
    } catch (const base::Error&) {
      continue;  // it is being written, or is no ring
    }
    Seen& seen = seen_[rank];
    if (seen.pid != pid) seen = {.pid = pid, .cpu_seconds = 0, .at_ns = 0, .names = {}};
    const std::optional<ProcessNow> process = process_now(pid);
    now.facts = watch::read_facts(folder_, rank, pid, 0, seen.names);
    now.alive = now.facts.alive = process.has_value() && now.facts.phase != watch::Phase::end;
    now.step_seconds = now.facts.usual_step;
    if (process) {
      const int64_t at = base::monotonic_ns();
      if (seen.at_ns != 0 && at > seen.at_ns)
        now.cpu = (process->cpu_seconds - seen.cpu_seconds) / (static_cast<double>(at - seen.at_ns) / 1e9);
      seen.cpu_seconds = process->cpu_seconds, seen.at_ns = at;
      now.memory = process->memory;
    }
    ranks.push_back(std::move(now));
  }
  mark_stragglers(ranks);
  return ranks;
}

bool lives_here(const std::string& folder) {
  constexpr int kEnough = 4;
  for (int rank = 0; rank < kEnough; ++rank) {
    try {
      const base::RingReader phases(watch::phase_path(folder, rank));
      const std::vector<base::RingEntry> entries = phases.entries();
      const bool ended =
          !entries.empty() && entries.back().stamp.op == static_cast<uint16_t>(watch::Phase::end);
      if (!ended && process_now(phases.pid())) return true;
    } catch (const base::Error&) {
      // No such rank, or it has left no mark here.
    }
  }
  return false;
}

std::optional<watch::Verdict> RanksNow::verdict(const std::vector<RankNow>& ranks) {
  std::vector<watch::RankFacts> facts;
  for (const RankNow& rank : ranks) {
    if (rank.alive) facts.push_back(rank.facts);
  }
  return facts.empty() ? std::nullopt : watch::judge(facts, {});
}

}  // namespace lockstep::see
