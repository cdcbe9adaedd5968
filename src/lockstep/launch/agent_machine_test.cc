// Every decision of a launcher, one row each: a state, an event, and what follows. Nothing runs and nobody
// waits.
#include "lockstep/launch/agent_machine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>

namespace lockstep::launch {
namespace {

constexpr TimePoint kNow{std::chrono::hours(1)};
TimePoint ago(double seconds) {
  return kNow - std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(seconds));
}
TimePoint in(double seconds) { return ago(-seconds); }

std::string text_of(const AgentAction& action) {
  struct Text {
    std::string operator()(const JoinRound&) { return "join"; }
    std::string operator()(const StartRanks& a) { return a.first ? "start the first ranks" : "start ranks"; }
    std::string operator()(const SignalRanks& a) { return fmt::format("signal ranks {}", a.number); }
    std::string operator()(const EndRanks& a) { return fmt::format("end ranks within {}", a.grace.count()); }
    std::string operator()(const LeaveRanksBehind&) { return "leave ranks behind"; }
    std::string operator()(const ReportRound&) { return "report"; }
    std::string operator()(const TakeLastOutput&) { return "take output"; }
    std::string operator()(const SayWhoCannotEnd&) { return "say who cannot end"; }
    std::string operator()(const Announce& a) { return "say: " + a.sentence; }
    std::string operator()(const AnnounceSlow& a) { return "slow: " + a.sentence; }
    std::string operator()(const HurryVerdicts&) { return "hurry"; }
    std::string operator()(const EndBy& a) {
      return fmt::format("end by {:+}", std::chrono::duration_cast<Duration>(a.when - kNow).count());
    }
    std::string operator()(const TellSignal& a) {
      return fmt::format("tell signal {}{}", a.number, a.drop ? ", drop the step" : "");
    }
    std::string operator()(const TellLost& a) { return "tell lost " + a.token; }
    std::string operator()(const TellFailed& a) {
      std::string text = "tell failed";
      for (const Failure& one : a.failures)
        text += fmt::format(" {}:{}{}{}", one.rank, one.code, one.final ? " for good" : "", one.ending);
      return text;
    }
    std::string operator()(const TellHang& a) {
      return fmt::format("tell hang of {}: {}", a.rank, a.sentence);
    }
    std::string operator()(const TellDone& a) {
      return fmt::format("tell done {}{}", a.code, a.hurries ? ", hurries" : "");
    }
    std::string operator()(const TellStopped& a) {
      return a.hurries ? "tell stopped, hurries" : "tell stopped";
    }
  };
  return std::visit(Text{}, action);
}

std::string text_of(const std::vector<AgentAction>& actions) {
  std::string text;
  for (const AgentAction& action : actions) text += (text.empty() ? "" : "; ") + text_of(action);
  return text;
}

// "working, told failed; stop passed": the stage with what was told, and how far a wish to stop has come.
std::string text_of(const AgentState& state) {
  struct Text {
    std::string operator()(const Waiting& s) { return s.said.empty() ? "waiting" : "waiting, said so"; }
    std::string operator()(const Working& s) {
      const char* const told[] = {"", ", told failed", ", told done"};
      return std::string("working") + told[static_cast<int>(s.told)] +
             (s.held_back.failures.empty() ? "" : ", holds back") + (s.insist_at ? ", insists later" : "");
    }
    std::string operator()(const Ending& s) { return s.complained ? "ending, complained" : "ending"; }
    std::string operator()(const Stopped&) { return "stopped"; }
    std::string operator()(const Over&) { return "over"; }
  };
  const char* const stop[] = {"", "; asked", "; passed", "; forced"};
  return std::visit(Text{}, state.stage) + (state.round > 0 ? fmt::format(" {}", state.round) : "") +
         stop[static_cast<int>(state.stop)];
}

constexpr AgentRules kOwn{.own_program = true, .grace = Duration(3000)};
constexpr AgentRules kOther{.own_program = false, .grace = Duration(3000)};
constexpr AgentRules kScheduled{.own_program = true, .scheduled = true, .grace = Duration(3000)};
constexpr AgentRules kLimited{.own_program = true, .grace = Duration(3000), .end_within = Duration(60000)};

State leader(Phase phase, int signal = 0, int round = 0) {
  State state;
  state.phase = phase, state.signal = signal, state.round = round;
  return state;
}
State saves_only(State state) {
  state.save_only = true;
  return state;
}
State failed(State state) {
  state.failures.emplace_back();
  return state;
}
State waits(const char* whom) {
  State state;
  state.waiting = whom;
  return state;
}

RanksEnded::One rank(int code, bool starting = false) {
  RanksEnded::One one;
  one.failure.rank = 1, one.failure.code = code, one.starting = starting;
  return one;
}
RanksEnded::One out_of_memory() {
  RanksEnded::One one = rank(137);
  one.failure.out_of_memory = true;
  return one;
}

AgentState running(Stop stop = Stop::none, int signal = 0, Working working = {}) {
  return {.stage = std::move(working),
          .leader = leader(Phase::running, signal),
          .stop = stop,
          .signal = signal,
          .signalled_at = ago(10)};
}

AgentState with(AgentState state, const std::function<void(AgentState&)>& change) {
  change(state);
  return state;
}

struct Row {
  const char* name;
  AgentRules rules;
  AgentState state;
  AgentEvent event;
  const char* then;     // text_of the state after it
  const char* actions;  // text_of them
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class AgentMachine : public testing::TestWithParam<Row> {};

TEST_P(AgentMachine, Goes) {
  const Row& row = GetParam();
  const Transition made = next(row.rules, row.state, row.event, kNow);
  EXPECT_EQ(text_of(made.state), row.then);
  EXPECT_EQ(text_of(made.actions), row.actions);
}

std::string name_of(const testing::TestParamInfo<Row>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Rounds, AgentMachine,
    testing::Values(
        Row{"a round starts",
            kOwn,
            {},
            StatePublished{leader(Phase::running), true},
            "working",
            "start the first ranks"},
        Row{"a later round starts",
            kOwn,
            {.round = 1, .starts = 1},
            StatePublished{leader(Phase::running, 0, 2), true},
            "working 2",
            "start ranks"},
        Row{"a round without this node",
            kOwn,
            {},
            StatePublished{leader(Phase::running), false},
            "waiting",
            ""},
        Row{"a round that this node has left",
            kOwn,
            {.round = 1},
            StatePublished{leader(Phase::running), true},
            "waiting 1",
            ""},
        Row{"the roll call goes on",
            kOwn,
            {},
            StatePublished{leader(Phase::roll_call), false},
            "waiting",
            ""},
        Row{"over before it began", kOwn, {}, StatePublished{leader(Phase::over), false}, "over", ""},
        Row{"who is missing is said after a second",
            kOwn,
            {.stage = Waiting{.since = ago(1.1)}, .leader = waits("for b")},
            TimePassed{},
            "waiting, said so",
            "say: for b"},
        Row{"not before",
            kOwn,
            {.stage = Waiting{.since = ago(0.9)}, .leader = waits("for b")},
            TimePassed{},
            "waiting",
            ""},
        Row{"nor again",
            kOwn,
            {.stage = Waiting{ago(20), "for b", ago(18)}, .leader = waits("for b")},
            TimePassed{},
            "waiting, said so",
            ""},
        Row{"but after half a minute",
            kOwn,
            {.stage = Waiting{ago(40), "for b", ago(31)}, .leader = waits("for b")},
            TimePassed{},
            "waiting, said so",
            "say: for b"},
        Row{"and when it is another",
            kOwn,
            {.stage = Waiting{ago(20), "for b", ago(1)}, .leader = waits("for c")},
            TimePassed{},
            "waiting, said so",
            "say: for c"},
        Row{"all is well", kOwn, running(), StatePublished{leader(Phase::running), true}, "working", ""},
        Row{"a failure of ours ends ranks at once", kOwn, running(),
            StatePublished{failed(leader(Phase::stopping)), true}, "ending", "report; end ranks within 0"},
        Row{"of another program with grace", kOther, running(),
            StatePublished{failed(leader(Phase::stopping)), true}, "ending", "report; end ranks within 3000"},
        Row{"ranks that saved end at once", kOwn, running(),
            StatePublished{saves_only(leader(Phase::over)), true}, "ending", "report; end ranks within 0"},
        Row{"a signal has given them their grace", kOther, running(Stop::passed, SIGTERM),
            StatePublished{leader(Phase::over, SIGTERM), true}, "ending; passed",
            "report; end ranks within 1000"},
        Row{"a node has come", kOwn, running(), StatePublished{leader(Phase::stopping), true}, "ending",
            "report; end ranks within 3000"},
        Row{"this node missed a round", kOwn, running(), StatePublished{leader(Phase::running, 0, 1), true},
            "ending", "report; end ranks within 3000"},
        Row{"ranks are gone",
            kOwn,
            {.stage = Ending{}, .leader = leader(Phase::stopping)},
            NothingRuns{},
            "stopped",
            "take output; tell stopped"},
        Row{"and were ended without asking",
            kOwn,
            {.stage = Ending{}, .leader = leader(Phase::stopping), .stop = Stop::forced},
            NothingRuns{},
            "stopped; forced",
            "take output; tell stopped, hurries"},
        Row{"gone and over",
            kOwn,
            {.stage = Ending{}, .leader = leader(Phase::over)},
            NothingRuns{},
            "over",
            "take output"},
        Row{"gone while the round goes on", kOwn, running(), NothingRuns{}, "working", ""},
        Row{"others still stop",
            kOwn,
            {.stage = Stopped{}},
            StatePublished{leader(Phase::stopping), true},
            "stopped",
            ""},
        Row{"the next round",
            kOwn,
            {.stage = Stopped{}},
            StatePublished{leader(Phase::roll_call, 0, 1), true},
            "waiting 1",
            "join"},
        Row{"no next round",
            kOwn,
            {.stage = Stopped{}},
            StatePublished{leader(Phase::over), true},
            "over",
            ""},
        Row{"ranks take their time to end", kOwn, {.stage = Ending{ago(7.9)}}, TimePassed{}, "ending", ""},
        Row{"too much of it",
            kOwn,
            {.stage = Ending{ago(8.1)}},
            TimePassed{},
            "ending, complained",
            "say who cannot end"},
        Row{"which is said once",
            kOwn,
            {.stage = Ending{ago(9), true}},
            TimePassed{},
            "ending, complained",
            ""},
        Row{"a launcher that was asked to end does",
            kOwn,
            {.stage = Ending{ago(9), true}, .leader = leader(Phase::stopping), .stop = Stop::asked},
            TimePassed{},
            "stopped; forced",
            "leave ranks behind; take output; tell stopped, hurries"},
        Row{"not as soon as it was asked",
            kOwn,
            {.stage = Ending{ago(9), true}, .stop = Stop::passed, .signalled_at = ago(7.9)},
            TimePassed{},
            "ending, complained; passed",
            ""}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Endings, AgentMachine,
    testing::Values(
        Row{"a rank fails", kOwn, running(), RanksEnded{.failures = {rank(1)}}, "working, told failed",
            "tell failed 1:1"},
        Row{"the last one does", kOwn, running(), RanksEnded{.failures = {rank(1)}, .all_ended = true},
            "working, told failed", "tell failed 1:1"},
        Row{"a second one", kOwn, running(Stop::none, 0, {.told = Told::failed}),
            RanksEnded{.failures = {rank(139)}}, "working, told failed", "tell failed 1:139"},
        Row{"all are done", kOwn, running(), RanksEnded{.all_ended = true}, "working, told done",
            "tell done 0"},
        Row{"which is said once", kOwn, running(Stop::none, 0, {.told = Told::done}),
            RanksEnded{.all_ended = true}, "working, told done", ""},
        Row{"a neighbour is lost", kOwn, running(), RanksEnded{.lost = {"b"}}, "working", "tell lost b"},
        Row{"a failure with a signal waits for it", kOwn, running(),
            RanksEnded{.failures = {rank(143)}, .signal_pending = true}, "working, holds back", ""},
        Row{"and is none then", kOwn, running(Stop::asked, 0, {.held_back = {.failures = {rank(143)}}}),
            RanksEnded{.all_ended = true, .worst_code = 143}, "working, told done; asked", "tell done 75"},
        Row{"all of ours were killed by it before they listened", kOwn, running(Stop::passed, SIGTERM),
            RanksEnded{.failures = {rank(143, true)}, .all_ended = true, .worst_code = 143},
            "working, told done; passed", "tell done 75"},
        Row{"or could not reach those that were", kOwn, running(Stop::passed, SIGTERM),
            RanksEnded{.failures = {rank(1, true)}, .all_ended = true, .worst_code = 1},
            "working, told done; passed", "tell done 75"},
        Row{"ours had ended well when they were told", kOwn, running(Stop::passed, SIGTERM),
            RanksEnded{.all_ended = true}, "working, told done; passed", "tell done 0"},
        Row{"unless it is one", kOwn, running(Stop::asked, 0, {.held_back = {.failures = {rank(1)}}}),
            RanksEnded{}, "working, told failed; asked", "tell failed 1:1"},
        Row{"a rank of ours has saved", kOwn, running(Stop::passed, SIGTERM),
            RanksEnded{.failures = {rank(75)}}, "working; passed", ""},
        Row{"75 without a signal is a failure", kOwn, running(), RanksEnded{.failures = {rank(75)}},
            "working, told failed", "tell failed 1:75"},
        Row{"one of ours that was starting ended otherwise", kOwn, running(Stop::passed, SIGTERM),
            RanksEnded{.failures = {rank(1, true)}}, "working; passed", ""},
        Row{"but not by a kill", kOwn, running(Stop::passed, SIGTERM),
            RanksEnded{.failures = {rank(137, true)}}, "working, told failed; passed", "tell failed 1:137"},
        Row{"nor refused", kOwn, running(Stop::passed, SIGTERM), RanksEnded{.failures = {rank(2, true)}},
            "working, told failed; passed", "tell failed 1:2"},
        Row{"nor where it only saves", kOwn,
            with(running(), [](AgentState& s) { s.leader = saves_only(s.leader); }),
            RanksEnded{.failures = {rank(1, true)}}, "working, told failed", "tell failed 1:1"},
        Row{"where it only saves it ends with 75", kOwn,
            with(running(), [](AgentState& s) { s.leader = saves_only(s.leader); }),
            RanksEnded{.failures = {rank(75)}, .all_ended = true, .worst_code = 75}, "working, told done",
            "tell done 75"},
        Row{"another program, told to stop, may end as it likes", kOther, running(Stop::asked),
            RanksEnded{.failures = {rank(1)}, .all_ended = true, .worst_code = 1},
            "working, told done; asked", "tell done 1"},
        Row{"ours, ended without asking, count as preempted", kOwn, running(Stop::forced, SIGINT),
            RanksEnded{.failures = {rank(137)}, .all_ended = true, .worst_code = 137},
            "working, told done; forced", "tell done 75, hurries"},
        Row{"another program, ended without asking, has its code", kOther, running(Stop::forced, SIGINT),
            RanksEnded{.failures = {rank(137)}, .all_ended = true, .worst_code = 137},
            "working, told done; forced", "tell done 137"},
        Row{"memory was short once", kOwn, running(), RanksEnded{.failures = {out_of_memory()}, .step = 4},
            "working, told failed", "tell failed 1:137"},
        Row{"and again at that step", kOwn, with(running(), [](AgentState& s) { s.out_of_memory_at = 4; }),
            RanksEnded{.failures = {out_of_memory()}, .step = 4}, "working, told failed",
            "tell failed 1:137 for good, not for the first time; `lockstep explain memory` shows what "
            "needs it"},
        Row{"but further on", kOwn, with(running(), [](AgentState& s) { s.out_of_memory_at = 4; }),
            RanksEnded{.failures = {out_of_memory()}, .step = 5}, "working, told failed",
            "tell failed 1:137"},
        Row{"a slow rank is named", kOwn, running(), VerdictReached{.sentence = "rank 1 is slow"}, "working",
            "slow: rank 1 is slow"},
        Row{"one that hangs has failed", kOwn, running(),
            VerdictReached{.sentence = "rank 1 hangs", .hangs = true, .culprit = 1}, "working, told failed",
            "tell hang of 1: rank 1 hangs"},
        Row{"no verdict on a round that has failed", kOwn, running(Stop::none, 0, {.told = Told::failed}),
            VerdictReached{.sentence = "rank 1 hangs", .hangs = true}, "working, told failed", ""},
        Row{"endings of an ended round",
            kOwn,
            {.stage = Ending{}},
            RanksEnded{.failures = {rank(1)}},
            "ending",
            ""}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Signals, AgentMachine,
    testing::Values(
        Row{"the first goes to the leader", kOwn, running(), SignalCaught{SIGTERM}, "working; asked",
            "tell signal 15"},
        Row{"a step that does not fit is dropped", kOwn, running(), SignalCaught{SIGTERM, false},
            "working; asked", "tell signal 15, drop the step"},
        Row{"not for a Ctrl-C", kOwn, running(), SignalCaught{SIGINT, false}, "working; asked",
            "tell signal 2"},
        Row{"a warning is a wish to save", kOwn, running(), SignalCaught{SIGUSR1, false}, "working; asked",
            "tell signal 15, drop the step"},
        Row{"to another program it is a word", kOther, running(), SignalCaught{SIGUSR1}, "working",
            "signal ranks 10"},
        Row{"a dropped terminal", kOwn, running(), SignalCaught{SIGHUP}, "working; asked", "tell signal 1"},
        Row{"while waiting", kOwn, {}, SignalCaught{SIGINT}, "waiting; asked", "tell signal 2"},
        Row{"again before the leader spoke", kOwn, running(Stop::asked), SignalCaught{SIGINT},
            "working; asked", "tell signal 2"},
        Row{"the leader has not spread it yet", kOwn, running(Stop::asked), TimePassed{}, "working; asked",
            ""},
        Row{"to our ranks as SIGTERM", kOwn, with(running(), [](AgentState& s) { s.leader.signal = SIGHUP; }),
            TimePassed{}, "working; passed", "hurry; signal ranks 15"},
        Row{"Ctrl-C as itself", kOwn,
            with(running(Stop::asked), [](AgentState& s) { s.leader.signal = SIGINT; }), TimePassed{},
            "working; passed", "hurry; signal ranks 2"},
        Row{"not where a scheduler has said it already", kScheduled,
            with(running(Stop::asked), [](AgentState& s) { s.leader.signal = SIGINT; }), TimePassed{},
            "working; passed", "hurry; signal ranks 15"},
        Row{"another program has its grace", kOther,
            with(running(Stop::asked), [](AgentState& s) { s.leader.signal = SIGHUP; }), TimePassed{},
            "working, insists later; passed", "hurry; signal ranks 1"},
        Row{"with a time to be gone", kLimited,
            with(running(Stop::asked), [](AgentState& s) { s.leader.signal = SIGTERM; }), TimePassed{},
            "working; passed", "hurry; end by +60000; signal ranks 15"},
        Row{"ranks that only save hear nothing", kOwn,
            with(running(Stop::asked),
                 [](AgentState& s) { s.leader = saves_only(leader(Phase::running, 15)); }),
            TimePassed{}, "working; passed", "hurry"},
        Row{"nor ranks that are ended",
            kOwn,
            {.stage = Ending{ago(1)}, .leader = leader(Phase::stopping, 15)},
            TimePassed{},
            "ending; passed",
            "hurry"},
        Row{"once", kOwn, running(Stop::passed, SIGTERM), TimePassed{}, "working; passed", ""},
        Row{"a second SIGTERM does not break a save", kOwn, running(Stop::passed, SIGTERM),
            SignalCaught{SIGTERM}, "working; passed", ""},
        Row{"a second Ctrl-C is heard by ranks", kOwn, running(Stop::passed, SIGINT), SignalCaught{SIGINT},
            "working; passed", "signal ranks 2"},
        Row{"a third ends them", kOwn,
            with(running(Stop::passed, SIGINT), [](AgentState& s) { s.insisted = 1; }), SignalCaught{SIGINT},
            "working; forced", "say: SIGINT again: killing the ranks now; end ranks within 0"},
        Row{"a second word ends another program", kOther, running(Stop::passed, SIGTERM),
            SignalCaught{SIGTERM}, "working; forced",
            "say: SIGTERM again: killing the ranks now; end ranks within 0"},
        Row{"a dropped terminal is no second word", kOther, running(Stop::passed, SIGTERM),
            SignalCaught{SIGHUP}, "working; passed", ""},
        Row{"a scheduler's first word after the leader's", kScheduled, running(Stop::passed, SIGINT),
            SignalCaught{SIGINT}, "working; passed", ""},
        Row{"its second", kScheduled,
            with(running(Stop::passed, SIGINT), [](AgentState& s) { s.heard = true; }), SignalCaught{SIGINT},
            "working; passed", "signal ranks 2"},
        Row{"the grace of another program is over", kOther,
            running(Stop::passed, SIGTERM, {.insist_at = kNow}), TimePassed{}, "working; passed",
            "end ranks within 0"},
        Row{"not yet", kOther, running(Stop::passed, SIGTERM, {.insist_at = in(0.1)}), TimePassed{},
            "working, insists later; passed", ""}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    TheEnd, AgentMachine,
    testing::Values(
        Row{"ranks that move are waited for", kOwn,
            with(running(Stop::passed, SIGTERM), [](AgentState& s) { s.signalled_at = ago(100); }),
            TimePassed{Progress{.all_start = false, .since_mark = 29}}, "working; passed", ""},
        Row{"those that do not have failed", kOwn,
            with(running(Stop::passed, SIGTERM), [](AgentState& s) { s.signalled_at = ago(100); }),
            TimePassed{Progress{.first_running = 3, .all_start = false, .since_mark = 31}},
            "working, told failed; passed",
            "tell hang of 3: rank 3 has made no progress for 31 s since SIGTERM"},
        Row{"counted from the signal", kOwn,
            with(running(Stop::passed, SIGTERM), [](AgentState& s) { s.signalled_at = ago(29); }),
            TimePassed{Progress{.all_start = false, .since_mark = 100}}, "working; passed", ""},
        Row{"unless one saves", kOwn,
            with(running(Stop::passed, SIGTERM), [](AgentState& s) { s.signalled_at = ago(100); }),
            TimePassed{Progress{.all_start = false, .busy = true, .since_mark = 100}}, "working; passed", ""},
        Row{"who starts has the grace", kOwn,
            with(running(Stop::passed, SIGTERM), [](AgentState& s) { s.signalled_at = ago(2.9); }),
            TimePassed{Progress{.since_mark = 100}}, "working; passed", ""},
        Row{"and no more", kOwn,
            with(running(Stop::passed, SIGTERM), [](AgentState& s) { s.signalled_at = ago(3.1); }),
            TimePassed{Progress{.since_mark = 0}}, "working, told failed; passed",
            "tell hang of 0: rank 0 has made no progress for 3 s since SIGTERM"},
        Row{"of ranks that only save there will be a verdict", kOwn,
            with(running(Stop::passed, SIGTERM),
                 [](AgentState& s) {
                   s.signalled_at = ago(100);
                   s.leader = saves_only(s.leader);
                 }),
            TimePassed{Progress{.since_mark = 100}}, "working; passed", ""},
        Row{"another program is not looked at", kOther, running(Stop::passed, SIGTERM),
            TimePassed{Progress{.since_mark = 100}}, "working; passed", ""},
        Row{"the launcher's time is over", kLimited,
            with(running(Stop::passed, SIGTERM), [](AgentState& s) { s.end_by = kNow; }), TimePassed{},
            "working; forced",
            "say: the ranks did not save within 60 s of SIGTERM: killing them now; end ranks within 0"},
        Row{"it is not yet", kLimited,
            with(running(Stop::passed, SIGTERM), [](AgentState& s) { s.end_by = in(0.1); }), TimePassed{},
            "working; passed", ""},
        Row{"nor where all have ended", kLimited,
            with(running(Stop::passed, SIGTERM, {.told = Told::done}),
                 [](AgentState& s) { s.end_by = kNow; }),
            TimePassed{}, "working, told done; passed", ""}),
    name_of);

// A fifth of the time, at most five seconds, is left for keeping what ranks could not save.
TEST(AgentSteps, LeavesTimeToKeepWhatIsLeft) {
  for (const auto& [within, left] : {std::pair{60000, 5000}, {10000, 2000}}) {
    AgentRules rules = kLimited;
    rules.end_within = Duration(within);
    AgentState state = running(Stop::asked);
    state.leader.signal = SIGTERM;
    EXPECT_EQ(next(rules, state, TimePassed{}, kNow).state.end_by, kNow + Duration(within - left));
  }
}

TEST(AgentSteps, BeginsByJoining) {
  const Transition made = begin(kNow);
  EXPECT_EQ(text_of(made.state), "waiting");
  EXPECT_EQ(text_of(made.actions), "join");
  EXPECT_TRUE(made.stage_changed) << "the leader may have answered already";
}

// A launcher that has told the leader something looks for its answer at once.
TEST(AgentSteps, NeedsWhatItsStageCanUse) {
  const Duration beat(20);
  EXPECT_EQ(needs(kOwn, {}, beat).look_every, Duration(0));
  EXPECT_FALSE(needs(kOwn, {}, beat).ranks);
  EXPECT_EQ(needs(kOwn, running(), beat).look_every, beat);
  EXPECT_TRUE(needs(kOwn, running(), beat).verdicts);
  const Needs told = needs(kOwn, running(Stop::none, 0, {.told = Told::done}), beat);
  EXPECT_EQ(told.look_every, Duration(0));
  EXPECT_FALSE(told.verdicts);
  EXPECT_TRUE(needs(kOwn, running(Stop::passed, SIGTERM), beat).progress);
  EXPECT_FALSE(needs(kOther, running(Stop::passed, SIGTERM), beat).progress);
  EXPECT_FALSE(needs(kOwn, {.stage = Ending{}}, beat).ranks);
}

}  // namespace
}  // namespace lockstep::launch
