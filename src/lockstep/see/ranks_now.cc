#include "lockstep/see/ranks_now.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/see/process_now.h"
#include "lockstep/watch/nodes.h"

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
  look_here(ranks);
  if (reach_ == Reach::all_hosts) ask_elsewhere(ranks);
  known_.clear(), members_.clear();
  for (const RankNow& rank : ranks) {
    known_.insert(rank.facts.rank);
    for (const watch::GroupFacts& group : rank.facts.groups)
      members_.insert(group.members.begin(), group.members.end());
  }
  mark_stragglers(ranks);
  return ranks;
}

std::vector<int> RanksNow::unseen() const {
  std::vector<int> ranks;
  std::set_difference(members_.begin(), members_.end(), known_.begin(), known_.end(),
                      std::back_inserter(ranks));
  return ranks;
}

void RanksNow::look_here(std::vector<RankNow>& ranks) {
  for (const int rank : ranks_with_marks(folder_)) {
    RankNow now;
    int pid = 0;
    bool lives = false;
    try {
      const base::RingReader ring(watch::ring_path(folder_, rank));
      pid = ring.pid(), lives = ring.writer_lives();
    } catch (const base::Error&) {
      continue;  // it is being written, or is no ring
    }
    Seen& seen = seen_[rank];
    if (seen.pid != pid) seen = {.pid = pid, .cpu_seconds = 0, .at_ns = 0, .names = {}};
    now.facts = watch::read_facts(folder_, rank, pid, 0, seen.names);
    // A shared disk has the marks of other hosts' ranks, whose processes are none of ours.
    if (!seen.names.host.empty() && seen.names.host != base::host_name()) continue;
    const std::optional<ProcessNow> process = lives ? process_now(pid) : std::nullopt;
    now.alive = now.facts.alive = process.has_value() && now.facts.phase != watch::Phase::end;
    now.step_seconds = now.facts.usual_step, now.waits = now.facts.waits;
    if (process) {
      const int64_t at = base::monotonic_ns();
      if (seen.at_ns != 0 && at > seen.at_ns)
        now.cpu = (process->cpu_seconds - seen.cpu_seconds) / (static_cast<double>(at - seen.at_ns) / 1e9);
      seen.cpu_seconds = process->cpu_seconds, seen.at_ns = at;
      now.memory = process->memory;
    }
    ranks.push_back(std::move(now));
  }
}

// What is seen here is newer than what was told of it.
void RanksNow::ask_elsewhere(std::vector<RankNow>& ranks) {
  watch::ask_nodes(folder_);
  for (watch::RankFacts& told : watch::read_nodes(folder_)) {
    if (told.host == base::host_name() || told.host.empty()) continue;
    const auto at =
        std::ranges::lower_bound(ranks, told.rank, {}, [](const RankNow& r) { return r.facts.rank; });
    if (at != ranks.end() && at->facts.rank == told.rank) continue;
    RankNow now;
    now.elsewhere = true;
    now.alive = told.alive = told.alive && told.phase != watch::Phase::end;
    now.step_seconds = told.usual_step, now.waits = told.waits, now.memory = told.memory;
    now.facts = std::move(told);
    ranks.insert(at, std::move(now));
  }
}

bool lives_here(const std::string& folder) {
  constexpr int kEnough = 4;
  for (int rank = 0; rank < kEnough; ++rank) {
    try {
      const base::RingReader phases(watch::phase_path(folder, rank));
      const std::vector<base::RingEntry> entries = phases.entries();
      const bool ended =
          !entries.empty() && entries.back().stamp.op == static_cast<uint16_t>(watch::Phase::end);
      if (ended || !phases.writer_lives() || !process_now(phases.pid())) continue;
      const watch::Names names = watch::read_names(base::try_read_file(watch::names_path(folder, rank)).text);
      if (names.host.empty() || names.host == base::host_name()) return true;
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
