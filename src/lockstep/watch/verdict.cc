#include "lockstep/watch/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/comm/group.h"

namespace lockstep::watch {

using watch::Phase;

namespace {

constexpr double kShortestHang = 30, kTimesUsual = 10;

// A rank inside a call that `missing` have not entered, or in which they are stopped.
struct Wait {
  const RankFacts* who;
  const GroupFacts* group;
  double since;
  std::vector<int> missing;
  bool entered = false;  // by all
};

// "reduce.data.0" is the data group of the reduce lane, of the copy that rank 0 is the first of.
std::string short_name(const std::string& name) {
  const size_t first = name.find('.');
  if (first == std::string::npos) return name;
  const size_t second = name.find('.', first + 1);
  return name.substr(first + 1, second == std::string::npos ? second : second - first - 1);
}

std::string where(const GroupFacts& group, int64_t sequence) {
  return fmt::format("{}, seq {}, group {}", group.call, sequence, short_name(group.name));
}

std::string list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  constexpr size_t kMost = 8;
  const size_t shown = std::min(ranks.size(), kMost);
  std::string text = fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks",
                                 fmt::join(ranks.begin(), ranks.begin() + static_cast<int64_t>(shown), " "));
  if (ranks.size() > shown) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

// A send and a receive are two ends of one call.
bool meet(uint16_t one, uint16_t other) {
  const auto is = [](uint16_t op, comm::Collective kind) {
    return op == comm::kFirstCollectiveOp + static_cast<int>(kind);
  };
  using comm::Collective;
  return (is(one, Collective::send) && is(other, Collective::recv)) ||
         (is(one, Collective::recv) && is(other, Collective::send));
}

class Judge {
 public:
  Judge(const std::vector<RankFacts>& facts, const Budgets& budgets) : facts_(facts), budgets_(budgets) {
    for (const RankFacts& one : facts) by_rank_[one.rank] = &one;
  }

  std::optional<Verdict> verdict() {
    if (auto found = dead()) return found;
    find_waits();
    if (auto found = of_ranks()) return found;
    return disk();
  }

 private:
  std::optional<Verdict> of_ranks() const {
    if (!waits_.empty()) return anyone_idle() ? culprits() : circle();
    if (auto found = everybody_inside()) return found;
    if (auto found = everything_enqueued()) return found;
    return stopped();
  }

  // A save that cannot end, while its time is not up: training waits with it, and nobody would know why.
  std::optional<Verdict> disk() const {
    for (const RankFacts& f : facts_) {
      if (!disk_of(f)) continue;
      return Verdict{Verdict::Kind::slow,
                     {f.rank},
                     fmt::format("{} has been at {} for {:.0f} s: {}; the run continues when it does",
                                 name(f.rank), watch::name_of(f.phase), f.phase_seconds, writer_of(f)),
                     f.writer_seconds};
    }
    return std::nullopt;
  }

  const GroupFacts* view(int rank, const std::string& group) const {
    const auto found = by_rank_.find(rank);
    if (found == by_rank_.end()) return nullptr;
    for (const GroupFacts& one : found->second->groups) {
      if (one.name == group) return &one;
    }
    return nullptr;
  }

  std::string name(int rank) const {
    const auto found = by_rank_.find(rank);
    return found == by_rank_.end() ? fmt::format("rank {}", rank)
                                   : fmt::format("rank {} ({})", rank, found->second->host);
  }

  // What stops a process.
  static const char* by(const RankFacts& f) { return f.frozen ? "a frozen cgroup" : "SIGSTOP"; }
  const char* by(int rank) const {
    const auto found = by_rank_.find(rank);
    return found == by_rank_.end() ? "SIGSTOP" : by(*found->second);
  }

  bool disk_of(const RankFacts& f) const {
    return f.writer_seconds > 0 && f.writer_seconds >= (budgets_.hang > 0 ? budgets_.hang : kShortestHang);
  }

  static std::string writer_of(const RankFacts& f, const std::string& whose = "it") {
    return fmt::format(
        "a thread of {} has been blocked in the kernel (state D) for {:.0f} s: a disk or file server does "
        "not respond",
        whose, f.writer_seconds);
  }

  std::string doing(const RankFacts& f) const {
    if (f.stopped)
      return fmt::format("its process is stopped ({}){}", by(f), f.last.empty() ? "" : ", in " + f.last);
    if (f.in_kernel) {
      return "its process is blocked in the kernel (state D): a disk or file server does not respond" +
             (f.last.empty() ? "" : "; its last instruction: " + f.last);
    }
    if (f.phase != Phase::train && disk_of(f)) {
      return fmt::format("it has been at {} for {:.0f} s; {}", watch::name_of(f.phase), f.phase_seconds,
                         writer_of(f));
    }
    if (f.phase == Phase::train && !f.reached.empty()) return "its device has reached " + f.reached;
    if (f.phase != Phase::train)
      return fmt::format("it has been at {} for {:.0f} s", watch::name_of(f.phase), f.phase_seconds);
    // Of a rank that should be computing: a lane of its own, or a writer that has nothing to do with it.
    const std::string blocked = f.writer_seconds > 0 ? writer_of(f) + "; " : "";
    return blocked + (f.last.empty() ? "it has started no instruction" : "its last instruction: " + f.last);
  }

  std::optional<Verdict> dead() const {
    for (const RankFacts& f : facts_) {
      if (f.alive) continue;
      return Verdict{
          Verdict::Kind::dead,
          {f.rank},
          fmt::format("{} is dead; {}", name(f.rank),
                      f.last.empty() ? "it had started no instruction" : "its last instruction: " + f.last),
          0};
    }
    return std::nullopt;
  }

  // Also where nobody waits for it yet, as while ranks start: it does not go on by itself.
  std::optional<Verdict> stopped() const {
    for (const RankFacts& f : facts_) {
      if (!f.stopped || f.stopped_seconds <= 0 || f.stopped_seconds < budget_of(f, budgets_)) continue;
      return Verdict{Verdict::Kind::frozen,
                     {f.rank},
                     fmt::format("{}: its process {} has been stopped (SIGSTOP) for {:.0f} s, at {}",
                                 name(f.rank), f.pid, f.stopped_seconds, watch::name_of(f.phase)),
                     f.stopped_seconds};
    }
    return std::nullopt;
  }

  // Of the same call, those that have not entered it.
  std::vector<int> missing_from(const RankFacts& who, const GroupFacts& group) const {
    std::vector<int> missing;
    for (const int member : group.members) {
      if (member == who.rank) continue;
      const GroupFacts* other = view(member, group.name);
      if (other == nullptr || other->entered < group.entered) missing.push_back(member);
    }
    return missing;
  }

  // Of the same call, those that entered it and were stopped there.
  std::vector<int> stopped_in(const GroupFacts& group) const {
    std::vector<int> stopped;
    for (const int member : group.members) {
      const GroupFacts* other = view(member, group.name);
      if (other != nullptr && other->inside && other->entered == group.entered &&
          by_rank_.at(member)->stopped)
        stopped.push_back(member);
    }
    return stopped;
  }

  void find_waits() {
    for (const RankFacts& f : facts_) {
      for (const GroupFacts& group : f.groups) {
        if (group.entered < 0 || !group.inside) continue;
        std::vector<int> missing = missing_from(f, group);
        const bool entered = missing.empty();
        if (entered && !f.stopped) missing = stopped_in(group);  // who is stopped waits for nobody
        if (missing.empty()) continue;
        waits_.push_back({&f, &group, group.since, std::move(missing), entered});
        waiting_.insert(f.rank);
      }
    }
  }

  bool idle(int rank) const { return !waiting_.contains(rank); }  // it waits for nobody
  bool anyone_idle() const {
    return std::any_of(waits_.begin(), waits_.end(), [&](const Wait& wait) {
      return std::any_of(wait.missing.begin(), wait.missing.end(), [&](int rank) { return idle(rank); });
    });
  }

  // Those that are waited for and wait for nobody, in the call that is waited for longest.
  std::optional<Verdict> culprits() const {
    const Wait* longest = nullptr;
    std::vector<int> roots;
    for (const Wait& wait : waits_) {
      std::vector<int> found;
      for (const int rank : wait.missing) {
        if (idle(rank)) found.push_back(rank);
      }
      if (found.empty() || (longest != nullptr && wait.since <= longest->since)) continue;
      longest = &wait, roots = std::move(found);
    }
    return blame(*longest, roots);
  }

  std::optional<Verdict> blame(const Wait& wait, const std::vector<int>& roots) const {
    Verdict verdict{Verdict::Kind::frozen, {}, "", wait.since};
    std::vector<std::string> who, what;
    bool moves = false;
    for (const int rank : roots) {
      const auto found = by_rank_.find(rank);
      const RankFacts nothing{.rank = rank, .phase_seconds = wait.since, .last_seconds = wait.since};
      const RankFacts& f = found == by_rank_.end() ? nothing : *found->second;
      const double budget = budget_of(f, budgets_);
      const double spent = f.phase == Phase::train ? wait.since : std::min(wait.since, f.phase_seconds);
      if (spent < budget) return std::nullopt;
      moves |= f.phase == Phase::train && f.last_seconds < budget;
      verdict.culprits.push_back(rank);
      who.push_back(name(rank));
      what.push_back(roots.size() > 1 ? fmt::format("{}: {}", rank, doing(f)) : doing(f));
    }
    if (wait.entered) {
      verdict.sentence =
          fmt::format("{} stopped ({}) inside {}; {} for {:.0f} s", fmt::join(who, " and "), by(roots[0]),
                      where(*wait.group, wait.group->entered), those_who_wait(wait), wait.since);
      return verdict;
    }
    if (moves) verdict.kind = Verdict::Kind::slow;
    verdict.sentence =
        fmt::format("{} {} {}; {} for {:.0f} s; {}", fmt::join(who, " and "),
                    moves ? "is slow to enter" : "never entered", where(*wait.group, wait.group->entered),
                    those_who_wait(wait), wait.since, fmt::join(what, "; "));
    return verdict;
  }

  std::string those_who_wait(const Wait& wait) const {
    std::vector<int> there;
    for (const Wait& other : waits_) {
      if (other.group->name == wait.group->name && other.group->entered == wait.group->entered)
        there.push_back(other.who->rank);
    }
    return list(there) + (there.size() == 1 ? " has been waiting there" : " have been waiting there");
  }

  // Everyone who is waited for waits as well.
  std::optional<Verdict> circle() const {
    Verdict verdict{Verdict::Kind::deadlock, {}, "", 0};
    std::vector<std::string> parts;
    for (const Wait& wait : waits_) {
      if (wait.since < budget_of(*wait.who, budgets_)) return std::nullopt;
      verdict.waited = std::max(verdict.waited, wait.since);
      verdict.culprits.push_back(wait.who->rank);
      if (parts.size() < 4) {
        parts.push_back(fmt::format("{} waits for {} in {}", name(wait.who->rank), list(wait.missing),
                                    where(*wait.group, wait.group->entered)));
      }
    }
    verdict.sentence = fmt::format("ranks have been waiting for each other for {:.0f} s: {}", verdict.waited,
                                   fmt::join(parts, "; "));
    return verdict;
  }

  std::optional<Verdict> everybody_inside() const {
    for (const RankFacts& f : facts_) {
      for (const GroupFacts& group : f.groups) {
        if (!group.inside || group.members.size() < 2) continue;
        if (auto found = inside(group)) return found;
      }
    }
    return std::nullopt;
  }

  std::optional<Verdict> inside(const GroupFacts& group) const {
    double since = group.since;
    const GroupFacts* other = nullptr;
    int differs = -1, first = -1;
    for (const int member : group.members) {
      const GroupFacts* theirs = view(member, group.name);
      if (theirs == nullptr || !theirs->inside || theirs->entered != group.entered) return std::nullopt;
      const RankFacts& f = *by_rank_.at(member);
      if (theirs->since < budget_of(f, budgets_)) return std::nullopt;
      since = std::min(since, theirs->since);
      if (theirs == &group) first = member;
      if (theirs->op != group.op && !meet(theirs->op, group.op)) differs = member, other = theirs;
    }
    const std::string there = where(group, group.entered);
    if (other != nullptr) {
      return Verdict{
          Verdict::Kind::mismatch,
          {first, differs},
          fmt::format(
              "{} reached {} and {} reached {}, which do not match; both have been waiting for {:.0f} s",
              name(first), there, name(differs), where(*other, other->entered), since),
          since};
    }
    if (const std::vector<int> stopped = stopped_in(group); !stopped.empty()) {
      return Verdict{
          Verdict::Kind::frozen, stopped,
          fmt::format("{} stopped ({}) inside {} for {:.0f} s", list(stopped), by(stopped[0]), there, since),
          since};
    }
    const std::string all = fmt::format("{} have all been inside {} for {:.0f} s without progress",
                                        list(group.members), there, since);
    if (const RankFacts* blocked = blocked_in(group); blocked != nullptr) {
      return Verdict{
          Verdict::Kind::frozen,
          {blocked->rank},
          all + ": " +
              (blocked->in_kernel ? fmt::format("the process of {} is blocked in the kernel (state "
                                                "D): a disk or file server does not respond",
                                                name(blocked->rank))
                                  : writer_of(*blocked, name(blocked->rank))),
          since};
    }
    return Verdict{Verdict::Kind::stuck, {}, all + ": they cannot reach each other", since};
  }

  // Of a group's ranks, one that the kernel holds: what it records of a call may be on a disk that stands
  // still.
  const RankFacts* blocked_in(const GroupFacts& group) const {
    for (const int member : group.members) {
      const RankFacts* f = by_rank_.at(member);
      if (f->in_kernel || f->writer_seconds > 0) return f;
    }
    return nullptr;
  }

  // On a device, where the host only sees what it enqueued: nothing is left to enqueue and nothing ends.
  std::optional<Verdict> everything_enqueued() const {
    double since = 0;
    std::vector<int> ranks;
    for (const RankFacts& f : facts_) {
      const bool enqueues = std::any_of(f.groups.begin(), f.groups.end(), [](const GroupFacts& g) {
        return g.enqueues && g.members.size() > 1;
      });
      if (!enqueues || f.phase != Phase::train) return std::nullopt;
      if (f.last_seconds < budget_of(f, budgets_)) return std::nullopt;
      since = ranks.empty() ? f.last_seconds : std::min(since, f.last_seconds);
      ranks.push_back(f.rank);
    }
    if (ranks.empty()) return std::nullopt;
    return Verdict{Verdict::Kind::stuck,
                   {},
                   fmt::format("{} have enqueued all of step {} and nothing has finished for {:.0f} s: a "
                               "kernel or a link is stuck; last instruction of {}: {}",
                               list(ranks), facts_[0].step, since, name(facts_[0].rank), facts_[0].last),
                   since};
  }

  const std::vector<RankFacts>& facts_;
  const Budgets& budgets_;
  std::map<int, const RankFacts*> by_rank_;
  std::vector<Wait> waits_;
  std::set<int> waiting_;
};

}  // namespace

const char* name_of(Verdict::Kind kind) {
  static constexpr const char* kNames[] = {"dead", "frozen", "slow", "stuck", "deadlock", "mismatch"};
  return kNames[static_cast<size_t>(kind)];
}

double budget_of(const RankFacts& f, const Budgets& b) {
  if (f.stopped && b.stopped > 0) return b.stopped;
  if (f.phase == Phase::train || f.stopped) {
    // A host runs ahead of its device, whose marks are far between: a step is the measure.
    const bool on_device =
        std::any_of(f.groups.begin(), f.groups.end(), [](const GroupFacts& group) { return group.enqueues; });
    const double usual = on_device ? std::max(f.usual_seconds, f.usual_step) : f.usual_seconds;
    return b.hang > 0 ? b.hang : std::max(kShortestHang, kTimesUsual * usual);
  }
  if (f.phase == Phase::start) return std::max(b.start, b.hang);
  const double own = f.phase == Phase::evaluate ? b.evaluate : b.save;
  return std::max({own, b.hang, kTimesUsual * f.usual_phase_seconds});
}

std::optional<Verdict> judge(const std::vector<RankFacts>& facts, const Budgets& budgets) {
  return Judge(facts, budgets).verdict();
}

}  // namespace lockstep::watch
