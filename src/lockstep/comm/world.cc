#include "lockstep/comm/world.h"

#include <fmt/format.h>

#include <cstdlib>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/consistency_check.h"
#include "lockstep/comm/interface.h"

namespace lockstep::comm {

namespace {

// How long one whose number is taken waits for the others to hear of it.
constexpr Duration kSecondComer{1000};

}  // namespace

World::World() : store_(make_local_store()) {}

World::World(WorldOptions options, std::unique_ptr<Store> store)
    : options_(std::move(options)), store_(std::move(store)) {
  LS_ASSERT(store_ != nullptr && options_.seat.rank >= 0 && options_.seat.rank < options_.seat.world);
  // Unless told otherwise, ranks talk through the interface that reaches the launcher's store.
  const std::optional<std::string> endpoint = base::environment("LOCKSTEP_STORE");
  if (options_.interface.empty() && endpoint) options_.interface = address_towards(*endpoint);
}

World::~World() = default;

void World::check_consistency(const std::vector<std::pair<std::string, std::string>>& facts) {
  if (size() == 1) return;
  ConsistencyCheck call{rank(), size(), calls_++, options_.join_timeout, {}, options_.say};
  const bool taken = call.number == 0 && store_->add(fmt::format("seat/{}", rank()), 1) > 1;
  if (taken) call.timeout = kSecondComer;
  try {
    comm::check_consistency(call, facts, *store_);
  } catch (const base::CommError&) {
    if (!taken) throw;  // else the others are at work already, and nobody judges any more
  }
  if (!taken) return;
  throw base::ConfigError(528, fmt::format("another process is already rank {} of this run, which has "
                                           "started without this one; give each process its own RANK",
                                           rank()));
}

std::unique_ptr<Group> World::group(const std::string& name, const std::vector<int>& ranks,
                                    device::Device& device) {
  if (ranks.size() == 1) return make_group_alone(name, &device);
  GroupOptions options;
  options.name = name;
  options.ranks = ranks;
  options.self = rank();
  options.timeout = options_.join_timeout;
  options.interface = options_.interface;
  options.device = &device;
  // An engine of GPUs is requested for their groups; what the host exchanges beside them is carried by
  // whatever fits.
  const Engine* requested = find_engine(options_.engine);
  const bool host_beside_gpus = requested != nullptr && device.id().kind == device::Kind::cpu &&
                                !requested->carries_memory_of(device::Kind::cpu);
  const std::string engine = resolve_engine(host_beside_gpus ? "auto" : options_.engine, options, *store_);
  options.timeout = options_.timeout;
  SharedArena* const shared = find_engine(engine)->shares_memory ? &arena() : nullptr;
  std::unique_ptr<Group> group = make_group(engine, options, *store_, shared);
  if (const std::optional<std::string> link = base::environment("LOCKSTEP_LINK_MBPS"))
    group->pretend_link(std::atof(link->c_str()) * 1e6);
  return group;
}

SharedArena& World::arena() {
  if (arena_ == nullptr) arena_ = make_shared_arena();
  return *arena_;
}

}  // namespace lockstep::comm
