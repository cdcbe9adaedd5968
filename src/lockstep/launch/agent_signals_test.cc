// What a launcher does about signals and when its time is over, one row each. Nothing runs and nobody waits.
#include <gtest/gtest.h>

#include "lockstep/launch/agent_machine_testing.h"

namespace lockstep::launch {
namespace {

using Row = DecisionRow;
class AgentSignals : public testing::TestWithParam<Row> {};

TEST_P(AgentSignals, Goes) { expect_decision(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Signals, AgentSignals,
    testing::Values(
        Row{"the first goes to the leader", kOwn, running(), SignalCaught{SIGTERM}, "working; asked",
            "tell signal 15"},
        Row{"a step that does not fit is dropped", kOwn, running(), SignalCaught{SIGTERM, false},
            "working; asked", "tell signal 15, drop the step"},
        Row{"not for a Ctrl-C", kOwn, running(), SignalCaught{SIGINT, false}, "working; asked",
            "tell signal 2"},
        Row{"a warning is a request to save", kOwn, running(), SignalCaught{SIGUSR1, false}, "working; asked",
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
    TheEnd, AgentSignals,
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
