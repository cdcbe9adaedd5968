#include "lockstep/launch/process/frameworks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/launch/process/process.h"

namespace lockstep::launch {
namespace {

using Variables = std::vector<std::string>;
using nlohmann::json;

// An IPv6 address needs brackets before a port.
std::string endpoint(const std::string& host, int port) {
  const bool bare = host.find(':') == std::string::npos;
  return bare ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

// tf.distribute.MultiWorkerMirroredStrategy: every worker knows all of them, and which one it is.
void add_tensorflow(Variables& environment, const RankFacts& facts) {
  const json config{{"cluster", {{"worker", rank_addresses(*facts.state)}}},
                    {"task", {{"type", "worker"}, {"index", facts.seat.rank}}}};
  set_variable(environment, "TF_CONFIG", config.dump());
}

// jax.distributed.initialize() reads the coordinator and the devices by itself and is given the two numbers
// by the script. A process that is alone on its node keeps all devices.
void add_jax(Variables& environment, const RankFacts& facts) {
  const State& state = *facts.state;
  set_variable(environment, "JAX_COORDINATOR_ADDRESS", endpoint(state.master_addr, state.master_port));
  set_variable(environment, "JAX_NUM_PROCESSES", std::to_string(facts.seat.world));
  set_variable(environment, "JAX_PROCESS_ID", std::to_string(facts.seat.rank));
  if (facts.seat.local_world > 1 && !has_variable(environment, "JAX_LOCAL_DEVICE_IDS"))
    set_variable(environment, "JAX_LOCAL_DEVICE_IDS", std::to_string(facts.seat.local_rank));
}

// Beside RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, what its own launcher sets.
void add_deepspeed(Variables& environment, const RankFacts& facts) {
  set_variable(environment, "LOCAL_SIZE", std::to_string(facts.seat.local_world));
  set_variable(environment, "CROSS_RANK", std::to_string(facts.seat.node));
  set_variable(environment, "CROSS_SIZE", std::to_string(facts.seat.nodes));
}

// Horovod's cross ranks: those with the same local rank, numbered over the nodes that have one.
int cross_rank(const State& state, const comm::Seat& seat) {
  return static_cast<int>(std::ranges::count_if(state.nodes, [&](const NodePlace& place) {
    return place.node < seat.node && place.card.ranks > seat.local_rank;
  }));
}
int cross_size(const State& state, const comm::Seat& seat) {
  return static_cast<int>(std::ranges::count_if(
      state.nodes, [&](const NodePlace& place) { return place.card.ranks > seat.local_rank; }));
}

// What horovodrun sets, for Gloo; NCCL is taken for GPUs where Horovod was built with it.
void add_horovod(Variables& environment, const RankFacts& facts) {
  const State& state = *facts.state;
  const std::pair<const char*, int> numbers[] = {{"HOROVOD_RANK", facts.seat.rank},
                                                 {"HOROVOD_SIZE", facts.seat.world},
                                                 {"HOROVOD_LOCAL_RANK", facts.seat.local_rank},
                                                 {"HOROVOD_LOCAL_SIZE", facts.seat.local_world},
                                                 {"HOROVOD_CROSS_RANK", cross_rank(state, facts.seat)},
                                                 {"HOROVOD_CROSS_SIZE", cross_size(state, facts.seat)},
                                                 {"HOROVOD_GLOO_RENDEZVOUS_PORT", state.master_port}};
  for (const auto& [name, number] : numbers) set_variable(environment, name, std::to_string(number));
  set_variable(environment, "HOROVOD_GLOO_RENDEZVOUS_ADDR", state.master_addr);
  set_variable(environment, "HOROVOD_HOSTNAME", facts.place->card.address);
  for (const char* name : {"HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"}) {
    if (!has_variable(environment, name)) set_variable(environment, name, "gloo");
  }
}

}  // namespace

const std::vector<Framework>& frameworks() {
  static const std::vector<Framework> rows = {
      {.name = "tensorflow", .variables = "TF_CONFIG", .port_per_rank = true, .add = add_tensorflow},
      {.name = "jax",
       .variables = "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID, JAX_LOCAL_DEVICE_IDS",
       .add = add_jax},
      {.name = "deepspeed", .variables = "LOCAL_SIZE, CROSS_RANK, CROSS_SIZE", .add = add_deepspeed},
      {.name = "horovod",
       .variables = "HOROVOD_RANK, HOROVOD_SIZE, HOROVOD_LOCAL_RANK, HOROVOD_GLOO_RENDEZVOUS_ADDR and others",
       .own_store = true,
       .add = add_horovod},
  };
  return rows;
}

const Framework* find_framework(const std::string& name) {
  for (const Framework& row : frameworks()) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

std::vector<std::string> rank_addresses(const State& state) {
  std::vector<std::string> all(static_cast<size_t>(state.world));
  for (const NodePlace& place : state.nodes) {
    for (int k = 0; k < place.card.ranks; ++k)
      all.at(static_cast<size_t>(place.first_rank + k)) =
          endpoint(place.card.address, place.card.master_port + k);
  }
  return all;
}

}  // namespace lockstep::launch
