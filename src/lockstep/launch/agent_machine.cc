#include "lockstep/launch/agent_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "lockstep/launch/process/process.h"

namespace lockstep::launch {

namespace {

constexpr double kStill = 30;  // seconds without a mark, after a signal, until ranks count as frozen
constexpr Duration kWaitsQuietly{1000}, kSaysAgain{30000};
constexpr Duration kSignalledGrace{1000};  // ranks that the signal reached have had their grace

bool stops(int number) {
  return std::find(std::begin(kStopSignals), std::end(kStopSignals), number) != std::end(kStopSignals);
}

double seconds(TimePoint::duration time) { return std::chrono::duration<double>(time).count(); }

// One transition being made. `on` is the table: a pair of stage and event that is not in it changes nothing.
class Step {
 public:
  Step(const AgentRules& rules, Transition& made, TimePoint now)
      : rules_(rules), state_(made.state), actions_(made.actions), now_(now) {}

  void take(AgentEvent event) {
    if (auto* published = std::get_if<StatePublished>(&event)) state_.leader = std::move(published->state);
    if (const auto* caught = std::get_if<SignalCaught>(&event)) return hear(*caught);
    if (std::holds_alternative<TimePassed>(event)) spread();
    std::visit([&](auto& stage, auto& what) { on(stage, what); }, state_.stage, event);
  }
  void join() {
    state_.stage = Waiting{.since = now_, .said_at = now_};
    act(JoinRound{});
  }

 private:
  void on(auto&, auto&) {}
  void on(Waiting&, StatePublished&);
  void on(Waiting&, TimePassed&);
  void on(Working&, RanksEnded&);
  void on(Working&, VerdictReached&);
  void on(Working&, StatePublished&);
  void on(Working&, TimePassed&);
  void on(Ending&, TimePassed&);
  void on(Ending&, NothingRuns&) { leave(); }
  void on(Stopped&, StatePublished&);

  void act(AgentAction action) { actions_.push_back(std::move(action)); }
  void hear(const SignalCaught& caught);
  void hear_again(int number);
  void spread();
  void force() {
    state_.stop = Stop::forced;
    act(EndRanks{Duration(0)});
  }
  bool ended_as_told(const RanksEnded::One& one) const;
  void judge_memory(Failure& failure, int64_t step);
  void tell_failures(Working& working, RanksEnded& ended);
  void watch_the_end(Working& working, const Progress* progress);
  void leave();

  const AgentRules& rules_;
  AgentState& state_;
  std::vector<AgentAction>& actions_;
  const TimePoint now_;
};

// ---- signals, in every stage ----

// The first is told to the leader, which spreads it to every node; a second Ctrl-C does not wait any longer.
// A scheduler signals every node, each a moment later than the last: its first word here may come after the
// leader's, and is no second one. Our own ranks save on SIGUSR1 too: Slurm's --signal warns with it.
void Step::hear(const SignalCaught& caught) {
  const bool warns = rules_.own_program && caught.number == SIGUSR1;
  const int number = warns ? SIGTERM : caught.number;
  if (!stops(number)) return act(SignalRanks{number});  // a word between the user and the program
  const bool repeats = !rules_.scheduled || state_.heard;
  state_.heard = true;
  if (state_.stop >= Stop::passed) {
    if (repeats && (number == SIGINT || number == SIGTERM)) hear_again(number);
    return;
  }
  act(TellSignal{number, number == SIGTERM && !caught.step_fits});
  state_.stop = Stop::asked;
}

// Our own ranks are saving by now, and a second word must not break that; who insists with Ctrl-C is heard by
// the ranks first, which know whether they save, and then ends them.
void Step::hear_again(int number) {
  const bool ends = !rules_.own_program || (number == SIGINT && ++state_.insisted >= 2);
  if (ends) {
    act(Announce{fmt::format("{} again: killing the ranks now", signal_name(number))});
    force();
  } else if (number == SIGINT) {
    act(SignalRanks{SIGINT});
  }
}

// What the leader has spread is passed on, once.
void Step::spread() {
  if (state_.leader.signal == 0 || state_.stop >= Stop::passed) return;
  state_.stop = Stop::passed, state_.signal = state_.leader.signal, state_.signalled_at = now_;
  act(HurryVerdicts{});
  if (const Duration all = rules_.end_within; all.count() > 0) {
    state_.end_by = now_ + all - std::min(kDeaf, all / 5);  // the rest is for keeping what is left
    act(EndBy{now_ + all});
  }
  auto* const working = std::get_if<Working>(&state_.stage);
  // Ranks that only save end by themselves.
  if (working == nullptr || state_.leader.save_only || state_.leader.phase != Phase::running) return;
  // Of a dropped terminal, or of a scheduler that has signalled the rank itself: a second SIGINT would end it
  // without saving.
  const bool as_term = rules_.own_program && (state_.signal != SIGINT || rules_.scheduled);
  act(SignalRanks{as_term ? SIGTERM : state_.signal});
  // Our own ranks finish their step and save, however long that takes.
  if (!rules_.own_program) working->insist_at = now_ + rules_.grace;
}

// ---- before a round ----

void Step::on(Waiting&, StatePublished& published) {
  const State& leader = state_.leader;
  if (leader.phase == Phase::over) {
    state_.stage = Over{};
  } else if (leader.phase == Phase::running && leader.round >= state_.round && published.placed) {
    state_.round = leader.round;
    state_.stage = Working{};
    act(StartRanks{.first = state_.starts++ == 0});
  }
}

void Step::on(Waiting& waiting, TimePassed&) {
  const std::string& text = state_.leader.waiting;
  const bool due = text != waiting.said || now_ - waiting.said_at > kSaysAgain;
  if (text.empty() || !due || now_ - waiting.since <= kWaitsQuietly) return;
  waiting.said = text, waiting.said_at = now_;
  act(Announce{text});
}

// ---- in a round ----

void Step::on(Working& working, RanksEnded& ended) {
  // A scheduler may signal the ranks beside us, so that they end before the leader has spread the word.
  const bool unheard = state_.stop == Stop::none && ended.signal_pending;
  RanksEnded& held = working.held_back;
  std::move(ended.failures.begin(), ended.failures.end(), std::back_inserter(held.failures));
  std::move(ended.lost.begin(), ended.lost.end(), std::back_inserter(held.lost));
  if (!unheard) {
    RanksEnded news = std::exchange(held, {});
    news.step = ended.step;
    const bool theirs = state_.stop != Stop::none && !rules_.own_program;
    if (!theirs && state_.stop != Stop::forced) tell_failures(working, news);
  }
  if (!ended.all_ended || working.told != Told::nothing) return;
  // Ours that were told to stop and have not failed were preempted, however they ended: those that the signal
  // found before they listened to it were killed by it, and others could not reach them any more.
  const bool told = rules_.own_program && (state_.stop != Stop::none || state_.leader.save_only);
  const bool forced = rules_.own_program && state_.stop == Stop::forced;
  act(TellDone{forced || (told && ended.worst_code != 0) ? kPreempted : ended.worst_code, forced});
  working.told = Told::done;
}

void Step::tell_failures(Working& working, RanksEnded& ended) {
  for (std::string& token : ended.lost) act(TellLost{std::move(token)});
  const bool were_told = state_.stop != Stop::none || state_.leader.save_only;
  std::vector<Failure> failures;
  for (RanksEnded::One& one : ended.failures) {
    if (were_told && ended_as_told(one)) continue;
    judge_memory(one.failure, ended.step);
    failures.push_back(std::move(one.failure));
  }
  if (failures.empty()) return;
  act(TellFailed{std::move(failures)});
  working.told = Told::failed;
}

// Ranks of ours that were told to stop have saved and end with 75. Those that still started had nothing to
// save; that others could not reach them any more is no news.
bool Step::ended_as_told(const RanksEnded::One& one) const {
  const int code = one.failure.code;
  const auto ended_by = [&](int number) { return code == 128 + number; };
  if (code == kPreempted || ended_by(SIGINT) || ended_by(SIGTERM)) return true;
  if (state_.leader.save_only || code == 2 || code == 3) return false;
  return one.starting && !ended_by(SIGKILL);
}

// Another process may have taken the memory, so that one more start is worth it; a second end at the same
// step says that there will never be enough.
void Step::judge_memory(Failure& failure, int64_t step) {
  if (!failure.out_of_memory || !rules_.own_program) return;
  failure.final = state_.out_of_memory_at && step <= *state_.out_of_memory_at;
  if (failure.final)
    failure.ending += ", not for the first time; `lockstep explain memory` shows what needs it";
  state_.out_of_memory_at = step;
}

void Step::on(Working& working, VerdictReached& verdict) {
  if (working.told != Told::nothing) return;
  if (!verdict.hangs) return act(AnnounceSlow{std::move(verdict.sentence)});
  act(TellHang{std::move(verdict.sentence), verdict.culprit, verdict.waited});
  working.told = Told::failed;
}

// Our own ranks lose nothing by ending at once, once one of them has failed: they go on from memory.
void Step::on(Working&, StatePublished&) {
  const State& leader = state_.leader;
  if (leader.phase == Phase::running && leader.round == state_.round) return;
  const bool failed = !leader.failures.empty();
  const bool at_once = rules_.own_program && (failed || leader.save_only);
  act(ReportRound{});
  act(EndRanks{at_once ? Duration(0) : !failed && leader.signal != 0 ? kSignalledGrace : rules_.grace});
  state_.stage = Ending{.since = now_};
}

void Step::on(Working& working, TimePassed& passed) {
  if (working.insist_at && now_ >= *working.insist_at) {
    working.insist_at.reset();
    act(EndRanks{Duration(0)});
  }
  watch_the_end(working, passed.progress ? &*passed.progress : nullptr);
}

// Our own ranks, told to stop: as long as one of them moves they are waited for, until this launcher's time
// is over.
void Step::watch_the_end(Working& working, const Progress* progress) {
  if (!rules_.own_program || state_.stop != Stop::passed || working.told != Told::nothing) return;
  if (state_.end_by && now_ >= *state_.end_by) {
    act(Announce{fmt::format("the ranks did not save within {:.0f} s of {}: killing them now",
                             seconds(rules_.end_within), signal_name(state_.signal))});
    return force();
  }
  // Those that only save do nothing else; if they hang, there will be a verdict.
  if (state_.leader.save_only || progress == nullptr) return;
  // Who has left no mark yet has nothing to save: it ends at once, unless it cannot.
  const double waited = seconds(now_ - state_.signalled_at);
  const double most = progress->all_start ? seconds(rules_.grace) : kStill;
  const double still = progress->all_start ? waited : std::min(waited, progress->since_mark);
  if (progress->busy || still < most) return;
  act(TellHang{fmt::format("rank {} has made no progress for {:.0f} s since {}", progress->first_running,
                           still, signal_name(state_.signal)),
               progress->first_running, still});
  working.told = Told::failed;
}

// ---- after it ----

void Step::on(Ending& ending, TimePassed&) {
  const Duration too_long = rules_.grace + kDeaf;
  if (now_ - ending.since <= too_long) return;
  if (!std::exchange(ending.complained, true)) act(SayWhoCannotEnd{});
  // Told to end, the launcher does; the guard stays until they are gone.
  if (state_.stop == Stop::none || now_ - state_.signalled_at <= too_long) return;
  act(LeaveRanksBehind{});
  state_.stop = Stop::forced;
  leave();
}

void Step::leave() {
  act(TakeLastOutput{});
  if (state_.leader.phase == Phase::over) {
    state_.stage = Over{};
    return;
  }
  act(TellStopped{.hurries = state_.stop == Stop::forced});
  state_.stage = Stopped{};
}

void Step::on(Stopped&, StatePublished&) {
  if (state_.leader.phase == Phase::stopping) return;
  if (state_.leader.phase == Phase::over) {
    state_.stage = Over{};
    return;
  }
  ++state_.round;
  join();
}

}  // namespace

Transition begin(TimePoint now) {
  Transition made{.state = {}, .actions = {}, .stage_changed = true};
  Step({}, made, now).join();
  return made;
}

Transition next(const AgentRules& rules, AgentState state, AgentEvent event, TimePoint now) {
  const size_t stage = state.stage.index();
  Transition made{.state = std::move(state), .actions = {}};
  Step(rules, made, now).take(std::move(event));
  made.stage_changed = made.state.stage.index() != stage;
  return made;
}

Needs needs(const AgentRules& rules, const AgentState& state, Duration beat) {
  if (is<Ending>(state))
    return {.wait = Duration(50), .look_every = Duration(200)};  // others wait for who leads
  const auto* const working = std::get_if<Working>(&state.stage);
  if (working == nullptr) return {.wait = beat};
  const bool told = working->told != Told::nothing;
  return {.wait = beat,
          .look_every = told ? Duration(0) : beat,
          .ranks = true,
          .verdicts = !told,
          .progress = rules.own_program && state.stop == Stop::passed && !told};
}

}  // namespace lockstep::launch
