// What a launcher decides, without anything that it does: a state, an event and the time give the next state
// and a list of actions.
//
//     Transition step = next(rules, std::move(state), SignalCaught{SIGTERM}, now);
//     for (const AgentAction& action : step.actions) ...   // the agent carries them out, in this order
//
// agent.cc gathers the events (signals, the guard's news, what the leader publishes, verdicts, the clock) and
// knows how each action is done. No call here waits, reads or writes: every decision has a row in
// agent_machine_test.cc.
#pragma once

#include <signal.h>

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/launch/failure.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/rendezvous/round_state.h"

namespace lockstep::launch {

using TimePoint = std::chrono::steady_clock::time_point;

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr Duration kDeaf{5000};  // a signal that was not taken for so long finds nobody at work

struct AgentRules {
  bool own_program = false;  // its ranks save when they are told to stop
  bool scheduled = false;    // a scheduler may signal every process, ranks too
  Duration grace{30000};     // from SIGTERM to SIGKILL
  Duration end_within{0};    // a launcher that was told to stop has ended by then; 0: as long as ranks save
};

// ---- events ----

struct SignalCaught {
  int number = 0;
  bool step_fits = true;  // stopping and a save, as measured, take no longer than this machine still lives
};

// Ranks that ended otherwise than with 0, and launchers beside this one that have gone, since the event
// before.
struct RanksEnded {
  struct One {
    Failure failure;
    bool starting = false;  // it had not come to train
  };
  std::vector<One> failures = {};
  std::vector<std::string> lost = {};  // tokens of launchers
  bool all_ended = false;
  int worst_code = 0;           // of those that have
  int64_t step = -1;            // that the ranks here had come to
  bool signal_pending = false;  // a signal was caught that this machine has not seen yet
};

// Of the watcher, on ranks that live but do not move.
struct VerdictReached {
  std::string sentence;
  bool hangs = false;  // false: slow
  int culprit = -1;    // rank
  double waited = 0;   // seconds
};

struct StatePublished {
  State state;
  bool placed = false;  // this node has a place in it
};

// How far ranks that were told to stop have come, as their marks say.
struct Progress {
  int first_running = 0;
  bool all_start = true;  // none has anything to save yet
  bool busy = false;      // one saves or evaluates, however long that takes
  double since_mark = 0;  // seconds since one of them moved
};
struct TimePassed {
  std::optional<Progress> progress = {};  // empty: not known, or none runs
};

struct NothingRuns {};  // the guard has ended everything below it

using AgentEvent =
    std::variant<SignalCaught, RanksEnded, VerdictReached, StatePublished, TimePassed, NothingRuns>;

// ---- actions ----

struct JoinRound {};
struct StartRanks {
  bool first = false;  // of this launcher
};
struct SignalRanks {
  int number = 0;
};
struct EndRanks {
  Duration grace{0};  // 0: at once
};
struct LeaveRanksBehind {};  // the guard ends them when it can
struct ReportRound {};       // why it ends, after what its ranks said last
struct TakeLastOutput {};
struct SayWhoCannotEnd {};
struct Announce {
  std::string sentence;
};
struct AnnounceSlow {  // an event of the run, too
  std::string sentence;
};
struct HurryVerdicts {};  // who is stopped is not waited for
struct EndBy {            // whatever happens
  TimePoint when;
};
// Words to the leader.
struct TellSignal {
  int number = 0;
  bool drop = false;  // the step in progress is not worth waiting for
};
struct TellLost {
  std::string token;
};
struct TellFailed {
  std::vector<Failure> failures;
};
struct TellHang {
  std::string sentence;
  int rank = -1;
  double waited = 0;
};
struct TellDone {
  int code = 0;
  bool hurries = false;  // there is no time left for another round
};
struct TellStopped {
  bool hurries = false;
};

using AgentAction = std::variant<JoinRound, StartRanks, SignalRanks, EndRanks, LeaveRanksBehind, ReportRound,
                                 TakeLastOutput, SayWhoCannotEnd, Announce, AnnounceSlow, HurryVerdicts,
                                 EndBy, TellSignal, TellLost, TellFailed, TellHang, TellDone, TellStopped>;

// ---- states ----

struct Waiting {  // for the round to start
  TimePoint since{};
  std::string said = {};  // who is missing
  TimePoint said_at{};
};
enum class Told { nothing, failed, done };
struct Working {
  Told told = Told::nothing;                // the leader, of this round's ranks
  RanksEnded held_back = {};                // until a signal that came with them has been seen
  std::optional<TimePoint> insist_at = {};  // when ranks of another program that were told to stop are ended
};
struct Ending {  // the round's ranks
  TimePoint since{};
  bool complained = false;  // of ranks that do not end
};
struct Stopped {};  // no rank is left, and the leader knows
struct Over {};
using Stage = std::variant<Waiting, Working, Ending, Stopped, Over>;

// How far a request to stop has come. It never goes back.
enum class Stop {
  none,
  asked,   // the leader was told of a signal; what ranks of another program do from now on is no failure
  passed,  // on to the ranks, here as on every node
  forced,  // they were ended without asking: how they end is no failure either
};

struct AgentState {
  Stage stage = Waiting{};
  int round = 0;   // waited for, or worked in
  int starts = 0;  // rounds in which this launcher has started ranks
  State leader = {};
  Stop stop = Stop::none;
  bool heard = false;  // a signal to stop came to this launcher itself, not only through the leader
  int signal = 0;      // that was passed on
  TimePoint signalled_at{};
  int insisted = 0;                      // Ctrl-C after it
  std::optional<TimePoint> end_by = {};  // when ranks of ours must have saved
  std::optional<int64_t> out_of_memory_at =
      {};  // the step of a rank that the kernel ended for want of memory
};

struct Transition {
  AgentState state;
  std::vector<AgentAction> actions;
  bool stage_changed = false;
};

Transition begin(TimePoint now);
Transition next(const AgentRules& rules, AgentState state, AgentEvent event, TimePoint now);

// What the loop gathers in this state, and how often.
struct Needs {
  Duration wait{0};        // for news, at most
  Duration look_every{0};  // at what the leader publishes
  bool ranks = false;      // RanksEnded
  bool verdicts = false;   // VerdictReached
  bool progress = false;   // in TimePassed
};
Needs needs(const AgentRules& rules, const AgentState& state, Duration beat);

template <class T>
bool is(const AgentState& state) {
  return std::holds_alternative<T>(state.stage);
}

}  // namespace lockstep::launch
