// Nodes that are only names, and their leader, over a store in this process. For tests.
#pragma once

#include <memory>
#include <string>

#include "lockstep/launch/rendezvous/leader.h"

namespace lockstep::launch {

inline NodeCard card(const std::string& name, int wanted = -1, int ranks = 1) {
  NodeCard card;
  card.token = name, card.host = name, card.address = "10.0.0." + name, card.wanted = wanted,
  card.ranks = ranks;
  return card;
}

inline NodeCard task_card(int number, const char* machine) {
  NodeCard task = card(std::string(1, static_cast<char>('a' + number)), number);
  task.ranks = 1, task.one_task_a_rank = true, task.machine = machine;
  return task;
}

// Some nodes and their leader.
class Story {
 public:
  explicit Story(Options options, bool own_program = false)
      : options_(options),
        leader_(options, {own_program, Duration(0)}, store_->clone(),
                [this](const std::string& text) { said += text + "\n"; }) {}
  void send(nlohmann::json message) {
    if (!message.contains("round")) message["round"] = state.round;
    send_text(message.dump());
  }
  void send_text(const std::string& text) {
    store_->push(kInbox, text);
    turn();
  }
  // Heard in the leader's next turn.
  void come(NodeCard node) {
    node.min_nodes = options_.min_nodes, node.max_nodes = options_.max_nodes;
    const nlohmann::json message = {
        {"say", "join"}, {"token", node.token}, {"card", to_json(node)}, {"round", state.round}};
    store_->push(kInbox, message.dump());
  }
  void join(const NodeCard& node) {
    come(node);
    turn();
  }
  void tell(const std::string& token, const std::string& what) { send({{"say", what}, {"token", token}}); }
  void fail(const std::string& token, int code, int64_t micros = 1) {
    Failure failure;
    failure.rank = 0, failure.host = token, failure.code = code, failure.unix_micros = micros;
    send({{"say", "failed"}, {"token", token}, {"failures", {to_json(failure)}}});
  }
  void live(const std::string& token) {
    store_->add(beat_key(token), 1);
    turn();
  }
  // Everyone shows that it lives; the leader looks at that twice a second, and after a failure more often.
  // What its first look shows may be from before.
  void beat() {
    for (const int ms : {520, 120}) {
      pass(ms);
      for (const char* token : {"a", "b"}) store_->add(beat_key(token), 1);
      turn();
    }
  }
  void pass(int ms) {  // time, and nothing else
    now_.steady += Duration(ms), now_.unix_micros += 1000 * int64_t{ms};
  }
  int64_t unix_micros() const { return now_.unix_micros; }
  void turn() {
    leader_.turn(now_);
    if (const auto text = store_->try_get(kState)) state = state_from_json(nlohmann::json::parse(*text));
  }
  std::string refusal(const std::string& token) { return store_->try_get(refusal_key(token)).value_or(""); }

  State state;
  std::string said;

 private:
  Options options_;
  Moment now_{.steady = {}, .unix_micros = 1};
  std::unique_ptr<comm::Store> store_ = comm::make_local_store();
  Leader leader_;
};

inline Options nodes(int least, int most, int max_restarts = 0) {
  Options options;
  options.min_nodes = least, options.max_nodes = most, options.max_restarts = max_restarts;
  options.monitor_interval = Duration(0);
  return options;
}

}  // namespace lockstep::launch
