// The one node that decides: it hears what the others say, watches who is alive, and publishes State.
//
// It runs inside the launcher that holds the store, a turn at a time; with one node it leads itself.
// Decisions: when a rendezvous is complete, which failure was first, whether there is another round, and with
// which code the run ends. A run of our own that ends otherwise than by itself, be it by a signal or by a
// failure too many, has one more round if its ranks' memory holds steps that no checkpoint has: it only saves
// them.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/store/store.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/rendezvous/round_state.h"

namespace lockstep::launch {

// Keys below the run's prefix.
constexpr const char* kInbox = "inbox";  // queue of messages to the leader
constexpr const char* kState = "state";
std::string beat_key(const std::string& token);     // counts up while that launcher lives
std::string refusal_key(const std::string& token);  // why it may not take part

struct LeaderRules {
  bool own_program = false;  // codes 2 and 3 mean "refused": a restart would be refused again
  Duration shortest_attempt{
      5000};              // a preemption sooner than that counts as a failure, or it might go on for ever
  bool sees_all = false;  // tasks of one machine: a dead launcher is seen, not inferred from its silence
};

// A moment on both clocks: one for waiting, one that nodes can compare. Tests make their own.
struct Moment {
  std::chrono::steady_clock::time_point steady{};
  int64_t unix_micros = 0;
  static Moment now();
};

class Leader {
 public:
  using Say = std::function<void(const std::string& sentence)>;
  Leader(const Options& options, LeaderRules rules, std::unique_ptr<comm::Store> store, Say say);
  void turn(const Moment& now);          // no call looks at a clock by itself
  bool may_go(const Moment& now) const;  // the run is over and everyone knows

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  // How far a node has come in its round.
  enum class Standing {
    joined,   // it works, or waits for the next round
    done,     // all its ranks have ended by themselves
    stopped,  // its ranks were ended
    absent,   // it has not joined the rendezvous yet
  };
  struct Member {
    NodeCard card;
    Standing standing = Standing::joined;
    bool gone = false;   // whatever it was doing, it does no more
    int code = 0;        // done: the worst of its ranks
    int64_t newest = 0;  // steps that its ranks' memory holds
    std::string beat;
    // When its count was seen to change, and the look before that one: it lived at some time after it.
    TimePoint beat_at, lived_after;
  };

  void hear(const nlohmann::json& message);
  void hear_join(const NodeCard& card);
  void hear_signal(bool drop);
  std::string objection(const NodeCard& card) const;
  const Member* holder_of(const NodeCard& card) const;  // of its number: another that lives, as far as known
  void resolve_claims();
  void refuse(const NodeCard& card, const std::string& reason);
  void watch_beats();
  void lose(Member& member, const std::string& how = "");
  bool lost_task() const;
  void admit_nodes();
  void start_round(const std::vector<NodeCard>& cards);
  bool know_who_lives();
  void judge();
  void judge_failures();
  struct Stop {
    bool again = false;  // another round follows
    int code = 0;        // of the run, if none does
    std::string why;     // where it is no failure
  };
  void stop(Stop stop);
  void end_round();
  bool wait_for_stops();
  bool holds_unsaved() const;
  bool rescue_is_due() const;
  void begin_rendezvous();
  void finish(int code);
  void publish();
  bool takes_part(const Member& member) const;
  Duration since(TimePoint then) const;

  Options options_;
  LeaderRules rules_;
  std::unique_ptr<comm::Store> store_;
  Say say_;
  std::map<std::string, Member> members_;  // by token
  std::vector<std::string> arrival_;       // tokens
  // Nodes that want the number of one that has worked, and when they came.
  std::vector<std::pair<NodeCard, TimePoint>> claims_;
  State state_;
  std::string published_;
  Moment now_;  // of this turn
  TimePoint failed_at_, looked_at_;
  std::optional<TimePoint> phase_at_;   // since when; empty before the first turn
  std::optional<TimePoint> enough_at_;  // rendezvous: since when there are enough nodes
  // The step at which the newest failure was, and the furthest of those before it: getting further refills
  // the budget of restarts.
  int64_t failed_step_ = -1, furthest_step_ = -1;
  int rescues_ = 0;                // rounds that only save
  std::optional<int> final_code_;  // of the run, once only saving is left
};

}  // namespace lockstep::launch
