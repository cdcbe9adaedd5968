#include "lockstep/launch/process/rank_environment.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/foreign_watch.h"
#include "lockstep/launch/process/frameworks.h"
#include "lockstep/launch/process/process.h"

namespace lockstep::launch {

namespace {

std::string names_of(const std::vector<int>& signals) {  // "SIGTERM,SIGINT"
  std::vector<std::string> names;
  for (const int number : signals) names.push_back(signal_name(number));
  return base::join(names, ",");
}

// The rank's GPU among those that the launcher may use, as CUDA_VISIBLE_DEVICES names it.
std::string gpu_of(int local_rank, const std::vector<std::string>& environment) {
  const std::string name = "CUDA_VISIBLE_DEVICES=";
  const auto visible = std::find_if(environment.begin(), environment.end(),
                                    [&](const std::string& one) { return one.starts_with(name); });
  if (visible == environment.end()) return std::to_string(local_rank);
  size_t begin = name.size();
  for (int before = 0; before < local_rank; ++before) {
    const size_t comma = visible->find(',', begin);
    if (comma == std::string::npos) {
      throw base::ConfigError(
          530, fmt::format(
                   "--virtual-local-rank: {} lists no GPU for local rank {}; start fewer ranks, or unset it",
                   *visible, local_rank));
    }
    begin = comma + 1;
  }
  return std::string(base::trimmed(visible->substr(begin, visible->find(',', begin) - begin)));
}

}  // namespace

std::vector<std::string> rank_environment(std::vector<std::string> base, const RankFacts& facts) {
  const Options& options = *facts.options;
  const State& state = *facts.state;
  const NodePlace& place = *facts.place;
  const auto text = [](int64_t value) { return std::to_string(value); };
  const std::pair<const char*, std::string> variables[] = {
      {"RANK", text(facts.seat.rank)},
      {"LOCAL_RANK", text(facts.seat.local_rank)},
      {"WORLD_SIZE", text(facts.seat.world)},
      {"LOCAL_WORLD_SIZE", text(facts.seat.local_world)},
      {"GROUP_RANK", text(facts.seat.node)},
      {"GROUP_WORLD_SIZE", text(facts.seat.nodes)},
      {"ROLE_NAME", options.role},
      {"ROLE_RANK", text(place.role_rank + facts.seat.local_rank)},
      {"ROLE_WORLD_SIZE", text(place.role_world)},
      {"MASTER_ADDR", state.master_addr},
      {"MASTER_PORT", text(state.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", text(state.restarts)},
      {"TORCHELASTIC_MAX_RESTARTS", text(options.max_restarts)},
      {"TORCHELASTIC_RUN_ID", options.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCHELASTIC_ERROR_FILE", facts.error_file},
  };
  for (const auto& [name, value] : variables) set_variable(base, name, value);
  if (options.virtual_local_rank) {
    set_variable(base, "LOCAL_RANK", "0");
    set_variable(base, "CUDA_VISIBLE_DEVICES", gpu_of(facts.seat.local_rank, base));
  }
  if (const Framework* framework = find_framework(options.framework)) framework->add(base, facts);
  if (!facts.own_program) set_variable(base, "TORCHELASTIC_SIGNALS_TO_HANDLE", names_of(options.signals));
  if (!facts.own_program && options.hang_timeout > Duration(0)) {
    for (const auto& [name, value] : flight_variables(facts.flight_folder)) {
      if (!has_variable(base, name)) set_variable(base, name, value);
    }
  }
  if (!has_variable(base, "TORCH_NCCL_ASYNC_ERROR_HANDLING"))
    set_variable(base, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (!has_variable(base, "OMP_NUM_THREADS")) {
    // A foreign program gets what torchrun gives it; ours shares the node's processors between its ranks.
    if (facts.own_program) {
      set_variable(base, "OMP_NUM_THREADS", text(facts.processors));
    } else if (facts.seat.local_world > 1) {
      set_variable(base, "OMP_NUM_THREADS", "1");
    }
  }
  for (const char* name : {"LOCKSTEP_SECRET",  // the descriptor is enough
                           "LOCKSTEP_STORE", "LOCKSTEP_SECRET_FD", "LOCKSTEP_STORE_TLS", "LOCKSTEP_MEMORY_FD",
                           "LOCKSTEP_LAUNCHED", "LOCKSTEP_SAVE_ONLY", "LOCKSTEP_ROUND"}) {
    remove_variable(base, name);
  }
  if (facts.own_program) {
    set_variable(base, "LOCKSTEP_STORE", facts.store_endpoint);
    set_variable(base, "LOCKSTEP_SECRET_FD", text(kKeptDescriptor));
    set_variable(base, "LOCKSTEP_ROUND", text(state.round));  // restarts count failures alone
    if (facts.options->tls) set_variable(base, "LOCKSTEP_STORE_TLS", "1");
    if (facts.has_memory) set_variable(base, "LOCKSTEP_MEMORY_FD", text(kMemoryDescriptor));
    if (state.save_only) set_variable(base, "LOCKSTEP_SAVE_ONLY", "1");
    set_variable(base, "LOCKSTEP_LAUNCHED", text(facts.launched_millis));
  }
  return base;
}

}  // namespace lockstep::launch
