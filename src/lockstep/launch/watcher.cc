#include "lockstep/launch/watcher.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep::launch {

namespace {

constexpr std::chrono::milliseconds kInterval{1000};
constexpr double kWorthTelling = 2;  // seconds that someone has waited
// Without a look of this launcher for so long, it did not run itself: the machine was suspended, its
// container paused, or Ctrl-Z has stopped everything. That its ranks did not move meanwhile says nothing.
constexpr std::chrono::milliseconds kAbsent{5000};
constexpr double kStoppedAtTheEnd = 0.5;  // that a stopped process is given once the run shall end

std::string facts_key(const std::string& token) { return "watch/" + token; }

int64_t unix_micros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Watcher::Watcher(Options options, std::unique_ptr<comm::Store> store)
    : options_(std::move(options)), store_(std::move(store)) {}

void Watcher::read(const std::vector<RunningRank>& ranks) {
  facts_.clear();
  for (const RunningRank& one : ranks) {
    const double age = static_cast<double>(unix_micros() - one.started_micros) / 1e6;
    facts_.push_back(watch::read_facts(options_.run_folder, one.rank, one.pid, age, names_[one.rank]));
    note_stop(facts_.back());
    note_blocked(facts_.back());
  }
  limit_to_presence(facts_);
}

// Waits count from when this launcher came back.
void Watcher::limit_to_presence(std::vector<watch::RankFacts>& facts) const {
  const std::chrono::duration<double> present = std::chrono::steady_clock::now() - back_at_;
  for (watch::RankFacts& one : facts) watch::limit_waits(one, present.count());
}

// A debugger stops a process too, but somebody is there who will let it go on.
void Watcher::note_stop(watch::RankFacts& facts) {
  if (!facts.stopped || facts.traced) {
    stopped_since_.erase(facts.pid);
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  const auto since = stopped_since_.try_emplace(facts.pid, now).first->second;
  facts.stopped_seconds = std::chrono::duration<double>(now - since).count();
}

// Only of a rank that leaves no marks: a writer in the background that waits for its disk holds nobody up.
void Watcher::note_blocked(watch::RankFacts& facts) {
  std::map<int, Blocked>& before = blocked_[facts.pid];
  std::map<int, Blocked> now;
  if (facts.last_seconds >= kWorthTelling) {
    for (const auto& [thread, runs] : watch::blocked_threads(facts.pid)) {
      const auto found = before.find(thread);
      const bool same = found != before.end() && found->second.runs == runs;
      now[thread] = same ? found->second : Blocked{runs, std::chrono::steady_clock::now()};
      const std::chrono::duration<double> since = std::chrono::steady_clock::now() - now[thread].since;
      facts.writer_seconds = std::max(facts.writer_seconds, since.count());
    }
  }
  before = std::move(now);
}

void Watcher::hurry() { options_.budgets.stopped = kStoppedAtTheEnd; }

double Watcher::since_any_mark() const {
  double least = facts_.empty() ? 0 : facts_[0].last_seconds;
  for (const watch::RankFacts& one : facts_) least = std::min({least, one.last_seconds, one.phase_seconds});
  return least;
}

int64_t Watcher::step() const {
  int64_t furthest = -1;
  for (const watch::RankFacts& one : facts_) {
    if (one.phase != watch::Phase::start) furthest = std::max(furthest, one.step);
  }
  return furthest;
}

const watch::RankFacts* Watcher::facts_of(int rank) const {
  for (const watch::RankFacts& one : facts_) {
    if (one.rank == rank) return &one;
  }
  return nullptr;
}

std::optional<watch::Verdict> Watcher::look(const State& state, const std::vector<RunningRank>& ranks) {
  const auto now = std::chrono::steady_clock::now();
  if (options_.run_folder.empty() || now - looked_at_ < kInterval) return std::nullopt;
  if (now - left_at_ > kAbsent) back_at_ = now, stopped_since_.clear(), blocked_.clear();
  looked_at_ = now;
  read(ranks);
  left_at_ = std::chrono::steady_clock::now();
  if (!options_.leads) {
    tell(state.round);
    return std::nullopt;
  }
  // Where ranks here move, all do: nobody else is asked, unless somebody looks.
  const bool looked_at = options_.several && options_.publish && asked_.by_now(options_.run_folder);
  const bool judged = !options_.several || someone_waits();
  std::vector<watch::RankFacts> all = facts_;
  if (options_.several && (judged || looked_at)) all = hear(state);
  if (looked_at) options_.publish(all);
  if (!judged) return std::nullopt;
  std::optional<watch::Verdict> verdict = watch::judge(all, options_.budgets);
  if (!verdict || verdict->hangs()) return verdict;
  if (said_slow_) return std::nullopt;
  said_slow_ = true;
  return verdict;
}

void Watcher::tell(int round) {
  nlohmann::json facts = nlohmann::json::array();
  for (const watch::RankFacts& one : facts_) facts.push_back(to_json(one));
  store_->set(facts_key(options_.token), write_json({{"round", round}, {"facts", facts}}));
}

bool Watcher::someone_waits() const {
  return std::any_of(facts_.begin(), facts_.end(), [](const watch::RankFacts& f) {
    return f.last_seconds > kWorthTelling ||
           std::any_of(f.groups.begin(), f.groups.end(),
                       [](const watch::GroupFacts& g) { return g.inside && g.since > kWorthTelling; });
  });
}

// What the other nodes have told, behind what is seen here.
std::vector<watch::RankFacts> Watcher::hear(const State& state) {
  std::vector<watch::RankFacts> all = facts_;
  for (const NodePlace& place : state.nodes) {
    if (place.card.token == options_.token) continue;
    const nlohmann::json told =
        nlohmann::json::parse(store_->try_get(facts_key(place.card.token)).value_or(""), nullptr, false);
    try {
      if (told.is_discarded() || told.at("round") != state.round) continue;
      for (const nlohmann::json& one : told.at("facts")) all.push_back(watch::facts_from_json(one));
    } catch (const nlohmann::json::exception&) {
      continue;  // a node of another version
    }
  }
  limit_to_presence(all);
  return all;
}

}  // namespace lockstep::launch
