// A launcher's decision as a row: a state, an event, and what follows, as text. For tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>

#include "lockstep/launch/agent_machine.h"

namespace lockstep::launch {

inline constexpr TimePoint kNow{std::chrono::hours(1)};
inline TimePoint ago(double seconds) {
  return kNow - std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(seconds));
}
inline TimePoint in(double seconds) { return ago(-seconds); }

inline std::string text_of(const AgentAction& action) {
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

inline std::string text_of(const std::vector<AgentAction>& actions) {
  std::string text;
  for (const AgentAction& action : actions) text += (text.empty() ? "" : "; ") + text_of(action);
  return text;
}

// "working, told failed; stop passed": the stage with what was told, and how far a request to stop has come.
inline std::string text_of(const AgentState& state) {
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

inline constexpr AgentRules kOwn{.own_program = true, .grace = Duration(3000)};
inline constexpr AgentRules kOther{.own_program = false, .grace = Duration(3000)};
inline constexpr AgentRules kScheduled{.own_program = true, .scheduled = true, .grace = Duration(3000)};
inline constexpr AgentRules kLimited{
    .own_program = true, .grace = Duration(3000), .end_within = Duration(60000)};

inline State leader(Phase phase, int signal = 0, int round = 0) {
  State state;
  state.phase = phase, state.signal = signal, state.round = round;
  return state;
}
inline State saves_only(State state) {
  state.save_only = true;
  return state;
}
inline State failed(State state) {
  state.failures.emplace_back();
  return state;
}
inline State waits(const char* whom) {
  State state;
  state.waiting = whom;
  return state;
}

inline RanksEnded::One rank(int code, bool starting = false) {
  RanksEnded::One one;
  one.failure.rank = 1, one.failure.code = code, one.starting = starting;
  return one;
}
inline RanksEnded::One out_of_memory() {
  RanksEnded::One one = rank(137);
  one.failure.out_of_memory = true;
  return one;
}

inline AgentState running(Stop stop = Stop::none, int signal = 0, Working working = {}) {
  return {.stage = std::move(working),
          .leader = leader(Phase::running, signal),
          .stop = stop,
          .signal = signal,
          .signalled_at = ago(10)};
}

inline AgentState with(AgentState state, const std::function<void(AgentState&)>& change) {
  change(state);
  return state;
}

struct DecisionRow {
  const char* name;
  AgentRules rules;
  AgentState state;
  AgentEvent event;
  const char* then;     // text_of the state after it
  const char* actions;  // text_of them
};
inline void PrintTo(const DecisionRow& row, std::ostream* out) { *out << row.name; }

inline std::string name_of(const testing::TestParamInfo<DecisionRow>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

inline void expect_decision(const DecisionRow& row) {
  const Transition made = next(row.rules, row.state, row.event, kNow);
  EXPECT_EQ(text_of(made.state), row.then);
  EXPECT_EQ(text_of(made.actions), row.actions);
}

}  // namespace lockstep::launch
