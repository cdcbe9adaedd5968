#include "lockstep/launch/rendezvous/rendezvous.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep::launch {

namespace {

// In a thread of its own, so that a console that does not take our output is not mistaken for a dead node.
void beat(std::stop_token stop, std::unique_ptr<comm::Store> store, const std::string& key) {
  std::mutex mutex;
  std::condition_variable_any alarm;
  std::unique_lock lock(mutex);
  try {
    do store->add(key, 1);
    while (!alarm.wait_for(lock, stop, std::chrono::seconds(1), [&] { return stop.stop_requested(); }));
  } catch (const base::Error&) {
    // The main loop notices too, and says it.
  }
}

}  // namespace

Rendezvous::Rendezvous(const Options& options, LeaderRules rules, const RunStore& run_store, NodeCard card,
                       Leader::Say say)
    : where_(run_store.endpoint),
      several_(!options.one_node()),
      card_(std::move(card)),
      store_(comm::with_prefix(run_store.connection->clone(), run_prefix(options.run_id))) {
  if (run_store.leads) {
    leader_ = std::make_unique<Leader>(
        options, rules, comm::with_prefix(run_store.connection->clone(), run_prefix(options.run_id)),
        std::move(say));
  }
  if (several_) {
    heart_ = std::jthread(beat, comm::with_prefix(run_store.connection->clone(), run_prefix(options.run_id)),
                          beat_key(card_.token));
  }
}

Rendezvous::~Rendezvous() = default;

template <class Call>
auto Rendezvous::reach(Call call) {
  try {
    return call();
  } catch (const base::CommError& error) {
    throw base::CommError(
        534, fmt::format("lost the node that hosts the store at {} ({}); stopping all ranks here", where_,
                         error.what()));
  }
}

void Rendezvous::send(nlohmann::json message) {
  message["token"] = card_.token;
  message["newest"] = memory_.newest, message["saved"] = memory_.saved;
  if (!message.contains("round")) message["round"] = state_.round;
  reach([&] { store_->push(kInbox, write_json(message)); });
}

void Rendezvous::join(int master_port) {
  card_.master_port = master_port;
  send({{"say", "join"}, {"card", to_json(card_)}});
}

const State& Rendezvous::look() {
  reach([&] {
    if (leader_) leader_->turn(Moment::now());
    if (several_ && !place()) {
      if (const auto reason = store_->try_get(refusal_key(card_.token)))
        throw base::ConfigError(535, *reason);
    }
    const std::string text = store_->try_get(kState).value_or("");
    if (text.empty() || text == seen_) return;
    state_ = state_from_json(nlohmann::json::parse(text));
    seen_ = text;
  });
  return state_;
}

void Rendezvous::say_failed(const std::vector<Failure>& failures, int64_t step) {
  nlohmann::json all = nlohmann::json::array();
  for (const Failure& failure : failures) all.push_back(to_json(failure));
  send({{"say", "failed"}, {"failures", all}, {"step", step}});
}

void Rendezvous::say_lost(const std::string& token) { send({{"say", "lost"}, {"lost", token}}); }
void Rendezvous::say_done(int code, bool hurries) {
  send({{"say", "done"}, {"code", code}, {"hurries", hurries}});
}
void Rendezvous::say_stopped(bool hurries) { send({{"say", "stopped"}, {"hurries", hurries}}); }
void Rendezvous::say_signal(int number, bool drop) {
  send({{"say", "signal"}, {"signal", number}, {"drop", drop}});
}

void Rendezvous::say_goodbye() {
  send({{"say", "bye"}});
  if (!leader_) return;
  for (;;) {
    reach([&] { leader_->turn(Moment::now()); });
    if (leader_->may_go(Moment::now())) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace lockstep::launch
