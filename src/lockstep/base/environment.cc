#include "lockstep/base/environment.h"

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/error.h"

namespace lockstep::base {

const std::vector<EnvironmentVariable>& environment_variables() {
  using enum EnvironmentVariable::SetBy;
  static const std::vector<EnvironmentVariable> rows = {
      {"LOCKSTEP_ATTENTION", user,
       "Who computes attention on a GPU, where it can: flash, cudnn or own. pieces: cuDNN, which cuts short "
       "sequences as if they were long, for tests.",
       "kernels"},
      {"LOCKSTEP_CACHE", user,
       "The folder that remembers which matrix products were fastest; none: nothing is remembered. Not set: "
       "lockstep in XDG_CACHE_HOME, or ~/.cache/lockstep.",
       "kernels"},
      {"LOCKSTEP_GRAPH", user,
       "off: a step on a GPU runs call by call, not as a CUDA graph. all: steps of several ranks become "
       "graphs too. "
       "Same bits.",
       "run"},
      {"LOCKSTEP_LINK_MBPS", user,
       "Collectives of CPU ranks take at least their bytes divided by this speed, in megabytes a second: to "
       "see how a "
       "run behaves on a slower network.",
       "comm"},
      {"LOCKSTEP_NODE_FIRST", user,
       "off: sums over several nodes do not sum inside each node first: to see what that gains.", "run"},
      {"LOCKSTEP_SECRET", user, "The secret that nodes share, where --rdzv-secret-file names no file.",
       "launch verify"},

      {"LOCKSTEP_LAUNCHED", launcher, "When the launcher was started, in milliseconds since 1970.", "launch"},
      {"LOCKSTEP_MEMORY_FD", launcher, "The descriptor of the memory that outlives a rank.", "launch"},
      {"LOCKSTEP_ROUND", launcher, "How often all ranks were started before.", "launch"},
      {"LOCKSTEP_SAVE_ONLY", launcher,
       "These ranks take no step: they save what their memory holds, and end.", "launch training"},
      {"LOCKSTEP_SECRET_FD", launcher, "The descriptor that a rank reads the store's secret from.", "launch"},
      {"LOCKSTEP_STORE", launcher, "Where the launcher's store listens, as host:port.",
       "cli comm launch verify"},
      {"LOCKSTEP_STORE_TLS", launcher, "Set: connections to that store use TLS.", "launch"},

      {"LOCKSTEP_FIRST_SEED", tests, "Random layouts: the seed to begin with.", "run"},
      {"LOCKSTEP_LONG", tests, "Set: rows that take long are run too (`./dev test --long`).",
       "checkpoint cli run"},
      {"LOCKSTEP_PRINT_GOLDEN", tests, "Set: GoldenHashes prints its rows instead of comparing them.", "run"},
      {"LOCKSTEP_SECONDS", tests, "Random layouts and recipes: how long to go on drawing them.", "run"},
      {"LOCKSTEP_SEED", tests, "Repeats the random test that a failure names, alone.", "checkpoint run"},
      {"LOCKSTEP_TEST_DEVICE", tests, "cuda: training tests run on a GPU (`./dev test --gpu`).", "run"},
      {"LOCKSTEP_TEST_PYTHON", tests, "A Python that has torch, safetensors and transformers.",
       "checkpoint cli"},
  };
  return rows;
}

std::optional<std::string> environment(const std::string& name) {
  LS_ASSERT(
      !name.starts_with("LOCKSTEP_") ||
          std::ranges::any_of(environment_variables(), [&](const auto& row) { return row.name == name; }),
      name);
  const char* const value = std::getenv(name.c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace lockstep::base
