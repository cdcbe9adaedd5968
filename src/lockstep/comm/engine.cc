#include "lockstep/comm/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/registry.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/engines.h"

namespace lockstep::comm {
namespace {

using base::ConfigError;

base::Registry<Engine>& registry() {
  static base::Registry<Engine> all("engine", {shm_engine(), gloo_engine(), nccl_engine()});
  return all;
}

device::Kind kind_of(const GroupOptions& options) {
  return options.device != nullptr ? options.device->id().kind : device::Kind::cpu;
}

std::vector<const Engine*> automatic_for(device::Kind kind) {
  std::vector<const Engine*> all;
  for (const Engine& engine : engines()) {
    if (engine.automatic && engine.carries_memory_of(kind)) all.push_back(&engine);
  }
  LS_ASSERT(!all.empty(), "no engine supports this kind of memory");
  return all;
}

// "auto or gloo": what works in the engine's place, whatever the ranks are.
std::string instead(device::Kind kind) { return "auto or " + automatic_for(kind).back()->name; }

const Engine& named(const std::string& name) {
  if (const Engine* engine = find_engine(name)) return *engine;
  std::vector<std::string> names = base::names_of(engines());
  names.insert(names.begin(), "auto");
  throw ConfigError(522, fmt::format("\"{}\" is not an engine; use {}", name, base::listed(names, "or")));
}

// What keeps it from carrying this group.
std::string why_not(const Engine& engine, const GroupOptions& options, Store& store) {
  return engine.why_not && options.ranks.size() > 1 ? engine.why_not(options, store) : "";
}

}  // namespace

bool Engine::carries_memory_of(device::Kind kind) const {
  return std::find(carries.begin(), carries.end(), kind) != carries.end();
}

const std::vector<Engine>& engines() { return registry().rows(); }
const Engine* find_engine(const std::string& name) { return registry().find(name); }

void register_engine(Engine engine) {
  LS_ASSERT(engine.make && !engine.carries.empty(),
            "engine " + engine.name + " has no make or carries function");
  registry().add(std::move(engine));
}

bool would_share_memory(const std::string& name) {
  const Engine* engine = find_engine(name);
  // What the host exchanges beside GPUs is carried by whatever fits.
  if (engine == nullptr || !engine->carries_memory_of(device::Kind::cpu))
    engine = automatic_for(device::Kind::cpu).front();
  return engine->shares_memory;
}

std::string resolve_engine(const std::string& name, const GroupOptions& options, Store& store,
                           std::string* why) {
  if (why != nullptr) why->clear();
  const device::Kind kind = kind_of(options);
  if (name != "auto") {
    const Engine& engine = named(name);
    if (!engine.carries_memory_of(kind)) {
      throw ConfigError(522, fmt::format("engine {} does not support {} memory; use {}", name,
                                         kind == device::Kind::cuda ? "CUDA" : "CPU", instead(kind)));
    }
    const std::string reason = why_not(engine, options, store);
    if (reason.empty()) return name;
    throw ConfigError(522, fmt::format("engine {} cannot be used: {}; use {}", name, reason, instead(kind)));
  }
  std::string first;  // what the engine that is liked best said
  for (const Engine* engine : automatic_for(kind)) {
    const std::string reason = why_not(*engine, options, store);
    if (first.empty()) first = reason;
    if (!reason.empty()) continue;
    if (why != nullptr) *why = first;
    return engine->name;
  }
  throw ConfigError(522, fmt::format("no engine can be used for this group: {}", first));
}

std::unique_ptr<Group> make_group(const std::string& engine, GroupOptions options, Store& store,
                                  SharedArena* arena) {
  LS_ASSERT(!options.ranks.empty());
  if (options.ranks.size() == 1) return make_group_alone(options.name, options.device);
  const Engine& row = named(engine == "auto" ? resolve_engine(engine, options, store) : engine);
  return row.make(options, store, row.shares_memory ? arena : nullptr);
}

}  // namespace lockstep::comm
