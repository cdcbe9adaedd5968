#include "lockstep/launch/rendezvous/round_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/base/text.h"

namespace lockstep::launch {

const NodePlace* State::place_of(const std::string& token) const {
  for (const NodePlace& place : nodes) {
    if (place.card.token == token) return &place;
  }
  return nullptr;
}

const NodePlace* State::place_of_rank(int rank) const {
  for (const NodePlace& place : nodes) {
    if (rank >= place.first_rank && rank < place.first_rank + place.card.ranks) return &place;
  }
  return nullptr;
}

std::vector<NodePlace> place_nodes(const std::vector<NodeCard>& cards) {
  const int count = static_cast<int>(cards.size());
  std::vector<const NodeCard*> by_number(cards.size(), nullptr), others;
  std::vector<const NodeCard*> numbered;
  for (const NodeCard& card : cards) (card.wanted >= 0 ? numbered : others).push_back(&card);
  std::sort(numbered.begin(), numbered.end(), [](auto* a, auto* b) { return a->wanted < b->wanted; });
  // A number beyond the nodes that are left (an elastic run after a loss) takes the next free one.
  for (const NodeCard* card : numbered) {
    if (card->wanted < count && !by_number[static_cast<size_t>(card->wanted)]) {
      by_number[static_cast<size_t>(card->wanted)] = card;
    } else {
      others.push_back(card);
    }
  }
  size_t next = 0;
  for (const NodeCard*& seat : by_number) {
    if (!seat) seat = others[next++];
  }
  std::vector<NodePlace> places;
  std::map<std::string, int> role_ranks;
  int first_rank = 0;
  for (const NodeCard* card : by_number) {
    NodePlace place;
    place.card = *card, place.node = static_cast<int>(places.size()), place.first_rank = first_rank;
    place.role_rank = role_ranks[card->role];
    role_ranks[card->role] += card->ranks, first_rank += card->ranks;
    places.push_back(place);
  }
  for (NodePlace& place : places) place.role_world = role_ranks[place.card.role];
  return places;
}

comm::Seat seat_of_task(const State& state, const NodePlace& task) {
  comm::Seat seat;
  seat.rank = task.first_rank, seat.world = state.world;
  seat.local_rank = seat.local_world = 0;
  std::map<std::string, int> machines;
  for (const NodePlace& place : state.nodes) {
    machines.try_emplace(place.card.machine, static_cast<int>(machines.size()));
    if (place.card.machine != task.card.machine) continue;
    ++seat.local_world;
    if (place.first_rank < task.first_rank) ++seat.local_rank;
  }
  seat.node = machines.at(task.card.machine), seat.nodes = static_cast<int>(machines.size());
  return seat;
}

std::string describe_waiting(const std::vector<NodeCard>& present, int wanted_nodes) {
  const int missing = wanted_nodes - static_cast<int>(present.size());
  const char* kind = !present.empty() && present[0].one_task_a_rank ? "task" : "node";
  std::string text = fmt::format("waiting for {} of {} {}s", missing, wanted_nodes, kind);
  std::vector<std::string> names;
  const bool numbered =
      std::any_of(present.begin(), present.end(), [](const NodeCard& card) { return card.wanted >= 0; });
  if (numbered) {
    for (int node = 0; node < wanted_nodes && names.size() < 8; ++node) {
      const bool here = std::any_of(present.begin(), present.end(),
                                    [&](const NodeCard& card) { return card.wanted == node; });
      if (!here) names.push_back(fmt::format("{} {}", kind, node));
    }
    if (missing > 8) names.push_back("...");
    return text + ": " + base::join(names, ", ");
  }
  for (size_t k = 0; k < present.size() && k < 8; ++k) names.push_back(present[k].host);
  if (present.size() > 8) names.push_back("...");
  return text + (names.empty() ? "" : "; here: " + base::join(names, ", "));
}

std::string write_json(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json to_json(const NodeCard& c) {
  return {{"token", c.token},
          {"host", c.host},
          {"address", c.address},
          {"role", c.role},
          {"pid", c.pid},
          {"wanted", c.wanted},
          {"ranks", c.ranks},
          {"min_nodes", c.min_nodes},
          {"max_nodes", c.max_nodes},
          {"port", c.master_port},
          {"first_attempt", c.first_attempt},
          {"task", c.one_task_a_rank},
          {"trains", c.trains},
          {"machine", c.machine},
          {"process_space", c.process_space}};
}

NodeCard card_from_json(const nlohmann::json& json) {
  NodeCard c;
  c.token = json.at("token"), c.host = json.at("host"), c.address = json.at("address"),
  c.role = json.at("role");
  c.pid = json.at("pid"), c.wanted = json.at("wanted"), c.ranks = json.at("ranks");
  c.min_nodes = json.at("min_nodes"), c.max_nodes = json.at("max_nodes"), c.master_port = json.at("port");
  c.first_attempt = json.at("first_attempt"), c.one_task_a_rank = json.at("task");
  c.trains = json.value("trains", false);
  c.machine = json.at("machine"), c.process_space = json.at("process_space");
  return c;
}

nlohmann::json to_json(const State& s) {
  nlohmann::json nodes = nlohmann::json::array(), failures = nlohmann::json::array();
  for (const NodePlace& place : s.nodes) {
    nodes.push_back({{"card", to_json(place.card)},
                     {"node", place.node},
                     {"first_rank", place.first_rank},
                     {"role_rank", place.role_rank},
                     {"role_world", place.role_world}});
  }
  for (const Failure& failure : s.failures) failures.push_back(to_json(failure));
  return {{"phase", static_cast<int>(s.phase)},
          {"round", s.round},
          {"restarts", s.restarts},
          {"waiting", s.waiting},
          {"nodes", nodes},
          {"world", s.world},
          {"first_attempt", s.first_attempt},
          {"port", s.master_port},
          {"master_addr", s.master_addr},
          {"signal", s.signal},
          {"failures", failures},
          {"again", s.again},
          {"why", s.why},
          {"save_only", s.save_only},
          {"saved", s.saved},
          {"code", s.code}};
}

State state_from_json(const nlohmann::json& json) {
  State s;
  s.phase = static_cast<Phase>(json.at("phase").get<int>()), s.round = json.at("round"),
  s.restarts = json.at("restarts");
  s.waiting = json.at("waiting"), s.world = json.at("world"), s.first_attempt = json.at("first_attempt");
  s.master_port = json.at("port"), s.master_addr = json.at("master_addr"), s.signal = json.at("signal");
  s.again = json.at("again"), s.why = json.at("why"), s.code = json.at("code");
  s.save_only = json.value("save_only", false), s.saved = json.value("saved", int64_t{0});
  for (const nlohmann::json& one : json.at("nodes")) {
    NodePlace place;
    place.card = card_from_json(one.at("card")), place.node = one.at("node"),
    place.first_rank = one.at("first_rank");
    place.role_rank = one.at("role_rank"), place.role_world = one.at("role_world");
    s.nodes.push_back(place);
  }
  for (const nlohmann::json& one : json.at("failures")) s.failures.push_back(failure_from_json(one));
  return s;
}

}  // namespace lockstep::launch
