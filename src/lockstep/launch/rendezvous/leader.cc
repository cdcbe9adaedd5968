#include "lockstep/launch/rendezvous/leader.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/rendezvous/leader_verdict.h"

namespace lockstep::launch {

namespace {

constexpr Duration kGoodbye{5000};  // how long the leader waits for the others to hear that the run is over

constexpr Duration kProofOfLife{4000};  // four beats
constexpr Duration kRescueCall{15000};  // for the nodes to come to one
// Between looks at the beats; closer where a failure waits for a verdict.
constexpr Duration kLook{500}, kCloseLook{100};

}  // namespace

std::string beat_key(const std::string& token) { return "beat/" + token; }
std::string refusal_key(const std::string& token) { return "refused/" + token; }

Leader::Leader(const Options& options, LeaderRules rules, std::unique_ptr<comm::Store> store, Say say)
    : options_(options), rules_(rules), store_(std::move(store)), say_(std::move(say)) {}

Moment Moment::now() {
  const auto unix_time = std::chrono::system_clock::now().time_since_epoch();
  return {.steady = std::chrono::steady_clock::now(),
          .unix_micros = std::chrono::duration_cast<std::chrono::microseconds>(unix_time).count()};
}

Duration Leader::since(TimePoint then) const {
  return std::chrono::duration_cast<Duration>(now_.steady - then);
}

bool Leader::takes_part(const Member& member) const { return state_.place_of(member.card.token) != nullptr; }

void Leader::turn(const Moment& now) {
  now_ = now;
  if (!phase_at_) phase_at_ = now_.steady;
  while (const std::optional<std::string> text = store_->pop(kInbox, Duration(0))) {
    const nlohmann::json message = nlohmann::json::parse(*text, nullptr, false);
    try {
      hear(message);
    } catch (const nlohmann::json::exception& error) {
      say_(fmt::format("ignoring a message from a node of another version ({})", error.what()));
    }
  }
  watch_beats();
  if (state_.phase == Phase::rendezvous) admit_nodes();
  if (state_.phase == Phase::running) judge();
  if (state_.phase == Phase::stopping) end_round();
  publish();
}

void Leader::hear(const nlohmann::json& message) {
  const std::string kind = message.at("say");
  if (kind == "join") return hear_join(card_from_json(message.at("card")));
  const auto found = members_.find(message.at("token").get<std::string>());
  if (found == members_.end()) return;
  Member& member = found->second;
  if (kind == "bye") member.gone = true;
  if (kind == "lost") {
    const auto lost = members_.find(message.at("lost").get<std::string>());
    if (lost != members_.end() && !lost->second.gone) lose(lost->second, "its task was killed");
  }
  member.newest = message.value("newest", member.newest);
  state_.saved = std::max(state_.saved, message.value("saved", int64_t{0}));
  if (kind == "signal" && state_.signal == 0) {
    state_.signal = message.at("signal");
    state_.why = fmt::format("{} was told to stop", member.card.host);
    hear_signal(message.value("drop", false));
  }
  if (message.value("round", state_.round) != state_.round) return;  // about a round that is over
  if (kind == "stopped") member.standing = Standing::stopped;
  if (kind == "done") member.standing = Standing::done, member.code = message.at("code");
  if (message.value("hurries", false)) rescues_ = kMostRescues;
  if (kind == "failed" && state_.phase == Phase::running) {
    if (state_.failures.empty()) failed_at_ = now_.steady;
    for (const nlohmann::json& one : message.at("failures"))
      state_.failures.push_back(failure_from_json(one));
    failed_step_ = std::max(failed_step_, message.value("step", int64_t{-1}));
  }
}

// Ranks that work save by themselves. In every other state what their memory holds is saved by a round of its
// own; where it holds nothing new, the run is over at once.
void Leader::hear_signal(bool drop) {
  const bool ours = rules_.own_program;
  if (state_.phase == Phase::rendezvous) {
    final_code_ = ours ? kPreempted : 128 + state_.signal;
    state_.save_only = ours && holds_unsaved();
    if (!state_.save_only) finish(*final_code_);
  } else if (state_.phase == Phase::running && drop) {
    stop({.code = kPreempted,
          .why = "the step in progress does not fit into the notice period and is abandoned"});
  } else if (state_.phase == Phase::stopping && state_.again && ours) {
    state_.again = false, state_.code = kPreempted;
  }
}

bool Leader::holds_unsaved() const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const auto& one) { return one.second.newest > state_.saved; });
}

bool Leader::rescue_is_due() const {
  return needs_rescue(
      {.own_program = rules_.own_program, .holds_unsaved = holds_unsaved(), .rescues = rescues_});
}

std::string Leader::objection(const NodeCard& card) const {
  for (const auto& [token, member] : members_) {
    const NodeCard& other = member.card;
    if (token == card.token || member.gone) continue;
    if (card.wanted >= 0 && card.wanted == other.wanted) {
      return fmt::format("node {} is already {} (process {}); {} (process {}) needs a different --node-rank",
                         card.wanted, other.host, other.pid, card.host, card.pid);
    }
    if (card.trains != other.trains) {
      const auto command = [](const NodeCard& one) {
        return one.trains ? "`lockstep train`" : "`lockstep launch`";
      };
      return fmt::format("{} runs {}, but {} runs {}; start the same command on every node", card.host,
                         command(card), other.host, command(other));
    }
    if (card.min_nodes != other.min_nodes || card.max_nodes != other.max_nodes) {
      return fmt::format("{} has --nnodes {}:{}, but {} has {}:{}; they must be the same", card.host,
                         card.min_nodes, card.max_nodes, other.host, other.min_nodes, other.max_nodes);
    }
  }
  return "";
}

const Leader::Member* Leader::holder_of(const NodeCard& card) const {
  for (const auto& [token, member] : members_) {
    if (token != card.token && !member.gone && card.wanted >= 0 && card.wanted == member.card.wanted)
      return &member;
  }
  return nullptr;
}

// A node that takes the place of a lost one may come before the loss is known. It is refused only once the
// other has shown that it lives: by a beat that cannot be from before.
void Leader::resolve_claims() {
  for (auto& [card, at] : std::exchange(claims_, {})) {
    const Member* holder = holder_of(card);
    if (holder != nullptr && holder->lived_after <= at) {
      claims_.emplace_back(card, at);
    } else if (holder != nullptr) {
      refuse(card, objection(card));
    } else {
      hear_join(card);
    }
  }
}

void Leader::refuse(const NodeCard& card, const std::string& reason) {
  store_->set(refusal_key(card.token), reason);
  say_("refused a node: " + reason);
}

void Leader::hear_join(const NodeCard& card) {
  const bool has_worked = state_.round > 0 || state_.phase != Phase::rendezvous;
  if (has_worked && holder_of(card) != nullptr) {
    claims_.emplace_back(card, now_.steady);
    return;
  }
  if (const std::string reason = objection(card); !reason.empty()) {
    refuse(card, reason);
    return;
  }
  Member& member = members_[card.token];
  if (member.card.token.empty()) {
    arrival_.push_back(card.token);
    member.beat_at = member.lived_after = now_.steady;
  }
  member.card = card, member.standing = Standing::joined, member.gone = false;
}

// A node whose count stands still is lost: its launcher was killed, or the network is gone.
void Leader::watch_beats() {
  if (options_.one_node() || since(looked_at_) < (state_.failures.empty() ? kLook : kCloseLook)) return;
  const TimePoint look_before = std::exchange(looked_at_, now_.steady);
  for (auto& [token, member] : members_) {
    if (member.gone) continue;
    const std::string beat = store_->try_get(beat_key(token)).value_or("");
    if (beat != member.beat) {
      member.beat = beat, member.beat_at = now_.steady;
      member.lived_after = std::max(member.lived_after, look_before);
    }
    if (since(member.beat_at) > options_.node_timeout) lose(member);
  }
  resolve_claims();
}

void Leader::lose(Member& member, const std::string& how) {
  member.gone = true;
  const NodePlace* place = state_.place_of(member.card.token);
  const double silent = std::chrono::duration<double>(now_.steady - member.beat_at).count();
  const double at_most = std::chrono::duration<double>(now_.steady - member.lived_after).count();
  if (!place || state_.phase == Phase::rendezvous) {
    say_(fmt::format("{} disappeared while waiting", member.card.host));
    if (!member.card.one_task_a_rank) return;
    state_.why =
        fmt::format("task {} on {} exited before all had joined", member.card.wanted, member.card.host);
    return finish(1);
  }
  if (state_.phase != Phase::running || member.standing == Standing::done) return;
  Failure failure;
  failure.node = place->node, failure.host = member.card.host;
  // The earliest that it can have been: ranks of other nodes fail within milliseconds after it.
  failure.unix_micros = now_.unix_micros - static_cast<int64_t>(at_most * 1e6);
  const int last = place->first_rank + place->card.ranks - 1;
  const std::string ranks = last > place->first_rank ? fmt::format("ranks {} to {}", place->first_rank, last)
                                                     : fmt::format("rank {}", last);
  failure.ending = fmt::format("its launcher (process {}, {}) was lost: no heartbeat for {}", member.card.pid,
                               ranks, base::human_duration(silent));
  if (member.card.one_task_a_rank) {
    const comm::Seat seat = seat_of_task(state_, *place);
    failure.rank = seat.rank, failure.local_rank = seat.local_rank, failure.node = seat.node;
    failure.pid = member.card.pid;
    failure.seconds = std::chrono::duration<double>(now_.steady - *phase_at_).count();
  }
  if (!how.empty()) failure.ending = how, failure.unix_micros = now_.unix_micros;
  if (state_.failures.empty()) failed_at_ = now_.steady;
  state_.failures.push_back(failure);
}

void Leader::admit_nodes() {
  std::vector<NodeCard> present;
  bool everyone_is_back = true;
  for (const std::string& token : arrival_) {
    const Member& member = members_.at(token);
    if (member.gone) continue;
    const bool joined = member.standing == Standing::joined;
    if (!joined) everyone_is_back = false;
    if (joined && static_cast<int>(present.size()) < options_.max_nodes) present.push_back(member.card);
  }
  const int count = static_cast<int>(present.size());
  // What was left in memory suits as many ranks as there were; of fewer, each launcher keeps its own.
  if (state_.save_only && everyone_is_back && present.size() < state_.nodes.size())
    return finish(final_code_.value_or(1));
  if (count < options_.min_nodes) enough_at_.reset();
  if (count >= options_.min_nodes && !enough_at_) enough_at_ = now_.steady;
  // Nodes that were there before need not be waited for twice.
  const Duration patience = state_.save_only ? kRescueCall : options_.join_timeout;
  const bool last_call_over =
      enough_at_ && (since(*enough_at_) >= options_.last_call || since(*phase_at_) >= patience);
  const bool known = enough_at_ && state_.round > 0 && everyone_is_back;
  if (count == options_.max_nodes || last_call_over || known) return start_round(present);
  state_.waiting = describe_waiting(present, enough_at_ ? options_.max_nodes : options_.min_nodes);
  if (since(*phase_at_) < patience) return;
  state_.why = fmt::format("{}; none joined within {}", state_.waiting,
                           base::human_duration(static_cast<double>(patience.count()) / 1000));
  finish(final_code_.value_or(1));
}

void Leader::start_round(const std::vector<NodeCard>& cards) {
  state_.nodes = place_nodes(cards);
  state_.world = 0, state_.waiting.clear(), state_.failures.clear(), state_.again = false;
  if (!state_.save_only) state_.why.clear();
  for (const NodePlace& place : state_.nodes) {
    state_.world += place.card.ranks;
    if (state_.round == 0) state_.first_attempt = std::max(state_.first_attempt, place.card.first_attempt);
  }
  state_.master_addr = options_.master_addr.empty() ? state_.nodes[0].card.address : options_.master_addr;
  state_.master_port = state_.nodes[0].card.master_port;
  state_.phase = Phase::running, phase_at_ = now_.steady;
}

// A node that was killed is often noticed first by the failure of others. So before one is named, every node
// must have shown that it lived after it, or have been silent for long enough.
bool Leader::know_who_lives() {
  if (options_.one_node() || rules_.sees_all) return true;
  for (auto& [token, member] : members_) {
    if (!takes_part(member) || member.gone || member.standing == Standing::done ||
        member.lived_after > failed_at_)
      continue;
    if (since(failed_at_) < kProofOfLife) return false;
    lose(member);
  }
  return true;
}

// What a scheduler has started once, nobody starts again.
bool Leader::lost_task() const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& one) {
    return one.second.gone && one.second.card.one_task_a_rank && takes_part(one.second);
  });
}

void Leader::judge_failures() {
  // Failures come in a flock: wait for the others before saying which was first.
  if (since(failed_at_) < options_.monitor_interval || !know_who_lives()) return;
  sort_by_time(state_.failures);
  const Failure& first = state_.failures.front();
  if (failed_step_ > furthest_step_) state_.restarts = 0, furthest_step_ = failed_step_;
  const Follows follows = after_failure({.code = first.code,
                                         .final = first.final,
                                         .own_program = rules_.own_program,
                                         .told_to_end = state_.signal != 0,
                                         .only_saves = state_.save_only,
                                         .lost_task = lost_task(),
                                         .lasted = since(*phase_at_) >= rules_.shortest_attempt,
                                         .restarts = state_.restarts,
                                         .max_restarts = options_.max_restarts});
  state_.restarts += follows.burns;
  stop({.again = follows.again, .code = follows.code});
}

void Leader::judge() {
  if (!state_.failures.empty()) return judge_failures();
  bool all_done = true, newcomer = false;
  int code = 0;
  for (const auto& [token, member] : members_) {
    if (!takes_part(member)) {
      newcomer |= member.standing == Standing::joined && !member.gone;
      continue;
    }
    all_done &= member.standing == Standing::done;
    if (member.code != 0) code = code == kPreempted ? code : member.code;
  }
  code = code_after(code, state_.signal, rules_.own_program);
  if (all_done) {
    // Told to stop while they started, they had nothing to save yet, but their memory may have.
    if (code != 0 && rescue_is_due()) return stop({.code = code});
    return finish(code == 0 ? 0 : final_code_.value_or(code));
  }
  if (newcomer && state_.signal == 0 && !state_.save_only &&
      static_cast<int>(state_.nodes.size()) < options_.max_nodes) {
    stop({.again = true, .why = "a node joined; restarting all ranks with it"});
  }
}

void Leader::stop(Stop stop) {
  state_.phase = Phase::stopping, phase_at_ = now_.steady;
  state_.again = stop.again, state_.code = stop.code, state_.why = std::move(stop.why);
}

// A node that cannot end its ranks is left out where the others can go on without it. Where they cannot, it
// is waited for: its ranks may be held up by a disk that comes back.
bool Leader::wait_for_stops() {
  const bool patient = since(*phase_at_) < options_.grace + Duration(15000);
  int others = 0;
  for (const auto& [token, member] : members_) others += !member.gone && member.standing == Standing::stopped;
  for (auto& [token, member] : members_) {
    if (!takes_part(member) || member.gone || member.standing == Standing::stopped) continue;
    if (patient || others < options_.min_nodes) return true;
    say_(fmt::format("{} did not stop its ranks in time and is excluded", member.card.host));
    member.gone = true;
  }
  return false;
}

void Leader::end_round() {
  if (wait_for_stops()) return;
  if (!state_.again) {
    if (!final_code_) final_code_ = state_.code;
    if (!rescue_is_due()) return finish(*final_code_);
    ++rescues_, state_.save_only = true;
  }
  begin_rendezvous();
}

void Leader::begin_rendezvous() {
  for (auto& [token, member] : members_) {
    if (takes_part(member)) member.standing = Standing::absent;
  }
  ++state_.round;
  state_.phase = Phase::rendezvous, phase_at_ = now_.steady;
  enough_at_.reset();
}

void Leader::finish(int code) { state_.phase = Phase::over, state_.code = code, phase_at_ = now_.steady; }

void Leader::publish() {
  std::string text = write_json(to_json(state_));
  if (text == published_) return;
  store_->set(kState, text);
  published_ = std::move(text);
}

bool Leader::may_go(const Moment& now) const {
  if (state_.phase != Phase::over) return false;
  if (now.steady - *phase_at_ > kGoodbye) return true;
  return std::all_of(members_.begin(), members_.end(), [](const auto& one) { return one.second.gone; });
}

}  // namespace lockstep::launch
