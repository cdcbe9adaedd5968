#include "lockstep/base/environment.h"

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/error.h"

namespace lockstep::base {

const std::vector<EnvironmentVariable>& environment_variables() {
  using enum EnvironmentVariable::SetBy;
  static const std::vector<EnvironmentVariable> rows = {
      {"LOCKSTEP_ATTENTION", user,
       "Which library computes attention on a GPU, if it can: flash, cudnn or own. pieces: cuDNN, with short "
       "sequences split as if they were long, for tests.",
       "kernels"},
      {"LOCKSTEP_CACHE", user,
       "The folder that caches which matrix products were fastest; none: no cache. Default: lockstep in "
       "XDG_CACHE_HOME, or ~/.cache/lockstep.",
       "kernels"},
      {"LOCKSTEP_CATALOGUE", user,
       "A file of devices, machines and prices whose rows replace the built-in ones. Default: "
       "lockstep/catalogue.toml in XDG_CONFIG_HOME, or ~/.config/lockstep/catalogue.toml.",
       "plan"},
      {"LOCKSTEP_CHAIN_KEY", user,
       "The file of the key that signs the links of log.chain: an Ed25519 private key (`lockstep audit "
       "--make-key`), or a secret for HMAC-SHA256.",
       "run"},
      {"LOCKSTEP_GRAPH", user,
       "off: a GPU step is launched call by call, not as a CUDA graph. all: steps of several ranks become "
       "graphs too. Same bits.",
       "run"},
      {"LOCKSTEP_LINK_MBPS", user,
       "Collectives of CPU ranks take at least their bytes divided by this speed, in megabytes per second: "
       "simulates a slower network.",
       "comm"},
      {"LOCKSTEP_MACHINE", user,
       "The machine of the catalogue that this is, with a tariff and a region (\"a3-highgpu-8g spot "
       "us-central1\"): what run.budget counts with, unless run.price says otherwise.",
       "training"},
      {"LOCKSTEP_NODE_FIRST", user,
       "off: disables hierarchical reduction (inside each node first), for comparison.", "run"},
      {"LOCKSTEP_OBJECT_CACHE", user,
       "The folder that keeps copies of objects read from s3://, gs:// and abfs://. Default: "
       "lockstep/objects in XDG_CACHE_HOME, or ~/.cache/lockstep/objects.",
       "store"},
      {"LOCKSTEP_OBJECT_CACHE_GIB", user,
       "How large that folder may grow before the copies that were not used for the longest time go. "
       "Default: "
       "64.",
       "store"},
      {"LOCKSTEP_OBJECT_PATIENCE", user,
       "Seconds for which a request to an object store that fails for a passing reason is tried again. "
       "Default: 120.",
       "store"},
      {"LOCKSTEP_SECRET", user, "The secret shared by all nodes, unless --rdzv-secret-file names a file.",
       "launch verify"},

      {"LOCKSTEP_LAUNCHED", launcher, "The time the launcher was started, in milliseconds since 1970.",
       "launch"},
      {"LOCKSTEP_MEMORY_FD", launcher, "The file descriptor of the memory that outlives a rank.", "launch"},
      {"LOCKSTEP_ROUND", launcher, "How many times all ranks have been started before.", "launch"},
      {"LOCKSTEP_SAVE_ONLY", launcher,
       "Set: these ranks run no step; they save what their memory holds, and exit.", "launch training"},
      {"LOCKSTEP_SECRET_FD", launcher, "The file descriptor from which a rank reads the store's secret.",
       "launch"},
      {"LOCKSTEP_STORE", launcher, "The address of the launcher's store, as host:port.",
       "cli comm launch verify"},
      {"LOCKSTEP_STORE_TLS", launcher, "Set: connections to that store use TLS.", "launch"},

      {"LOCKSTEP_FIRST_SEED", tests, "Random layouts: the first seed.", "run"},
      {"LOCKSTEP_LONG", tests, "Set: slow tests run too (`./dev test --long`).", "checkpoint cli run"},
      {"LOCKSTEP_PRINT_GOLDEN", tests, "Set: GoldenHashes prints its rows instead of comparing them.", "run"},
      {"LOCKSTEP_SECONDS", tests, "Random layouts and recipes: how long to keep drawing them.", "run"},
      {"LOCKSTEP_SEED", tests, "Repeats only the random test that a failure names.", "checkpoint run"},
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
