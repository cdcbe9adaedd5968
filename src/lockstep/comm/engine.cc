#include "lockstep/comm/engine.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/engines.h"

namespace lockstep::comm {
namespace {

struct Engine {
  const char* name;
  device::Kind kind;  // whose memory it works on
  std::unique_ptr<Group> (*make)(const GroupOptions& options, Store& store, SharedArena* arena);
};

constexpr Engine kEngines[] = {
    {"shm", device::Kind::cpu, make_shm_group},
    {"gloo", device::Kind::cpu, make_gloo_group},
    {"nccl", device::Kind::cuda, make_nccl_group},
};

const Engine* find(const std::string& name) {
  for (const Engine& engine : kEngines) {
    if (name == engine.name) return &engine;
  }
  return nullptr;
}

device::Kind kind_of(const GroupOptions& options) {
  return options.device != nullptr ? options.device->id().kind : device::Kind::cpu;
}

}  // namespace

std::string settle_engine(const std::string& wish, const GroupOptions& options, Store& store,
                          std::string* why) {
  if (why != nullptr) why->clear();
  const bool cuda = kind_of(options) == device::Kind::cuda;
  if (wish == "auto" && cuda) return "nccl";
  if (wish != "auto") {
    const Engine* engine = find(wish);
    if (engine == nullptr) {
      throw base::ConfigError(522, fmt::format("\"{}\" is not an engine; use auto, shm, gloo or nccl", wish));
    }
    if (engine->kind != kind_of(options)) {
      throw base::ConfigError(522, fmt::format("engine {} does not work on {} memory; use auto or {}", wish,
                                               cuda ? "CUDA" : "CPU", cuda ? "nccl" : "gloo"));
    }
  }
  if (wish == "gloo" || wish == "nccl" || options.ranks.size() == 1) return wish == "auto" ? "shm" : wish;
  const std::string reason = why_not_shm(options, store);
  if (reason.empty()) return "shm";
  if (wish == "shm") {
    throw base::ConfigError(522, fmt::format("engine shm cannot be used: {}; use auto or gloo", reason));
  }
  if (why != nullptr) *why = reason;
  return "gloo";
}

std::unique_ptr<Group> make_group(const std::string& engine, GroupOptions options, Store& store,
                                  SharedArena* arena) {
  LS_ASSERT(!options.ranks.empty());
  if (options.ranks.size() == 1) return make_group_alone(options.name, options.device);
  const std::string settled = engine == "auto" ? settle_engine(engine, options, store) : engine;
  const Engine* row = find(settled);
  if (row == nullptr) throw base::ConfigError(522, fmt::format("\"{}\" is not an engine", settled));
  return row->make(options, store, arena);
}

}  // namespace lockstep::comm
