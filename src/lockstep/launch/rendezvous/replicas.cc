#include "lockstep/launch/rendezvous/replicas.h"

#include <fmt/format.h>
#include <sys/sysinfo.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/launch/options.h"

namespace lockstep::launch {

using nlohmann::json;
using run::SnapshotCopy;

namespace {

constexpr size_t kPiece = 4 << 20;
constexpr Duration kPatience{10000}, kPause{20};

std::string endpoint_key(const std::string& token) { return "replica/endpoint/" + token; }
std::string holder_key(int rank) { return fmt::format("replica/holder/{}", rank); }
std::string copy_prefix(int rank, int64_t which) { return fmt::format("rank-{}/{}", rank, which); }

// Half of this host's memory, whatever it is.
int64_t half_of_memory() {
  struct sysinfo facts {};
  return ::sysinfo(&facts) == 0 ? static_cast<int64_t>(facts.totalram) * facts.mem_unit / 2
                                : int64_t{1} << 30;
}

comm::StoreServerOptions server_options(const Replicas::Options& options) {
  comm::StoreServerOptions server;
  server.address = options.address, server.secret = options.secret, server.tls = options.tls;
  server.most_bytes = half_of_memory(), server.log = options.say;
  return server;
}

}  // namespace

void put_copy(comm::Store& store, const std::string& prefix, const SnapshotCopy& copy) {
  store.remove(prefix + "/about");
  for (size_t at = 0, k = 0; at < copy.bytes.size(); at += kPiece, ++k) {
    const size_t size = std::min(kPiece, copy.bytes.size() - at);
    store.set(fmt::format("{}/{}", prefix, k), std::string(copy.bytes.data() + at, size));
  }
  store.set(prefix + "/about", json{{"shape", copy.shape},
                                    {"checksum", copy.checksum},
                                    {"commit", copy.commit},
                                    {"bytes", copy.bytes.size()}}
                                   .dump());
}

SnapshotCopy get_copy(comm::Store& store, const std::string& prefix) {
  const json about = json::parse(store.try_get(prefix + "/about").value_or(""), nullptr, false);
  if (!about.is_object()) return {};
  try {
    SnapshotCopy copy{about.at("shape"), about.at("checksum"), about.at("commit"), {}};
    const auto size = about.at("bytes").get<uint64_t>();
    if (size > static_cast<uint64_t>(half_of_memory())) return {};
    for (size_t k = 0; copy.bytes.size() < size; ++k) {
      const std::optional<std::string> piece = store.try_get(fmt::format("{}/{}", prefix, k));
      if (!piece || piece->empty() || piece->size() > size - copy.bytes.size()) return {};
      copy.bytes.insert(copy.bytes.end(), piece->begin(), piece->end());
    }
    const auto whole = static_cast<int64_t>(size);
    return run::snapshot_checksum(copy.bytes.data(), whole) == copy.checksum ? std::move(copy)
                                                                             : SnapshotCopy{};
  } catch (const json::exception&) {
    return {};
  }
}

Replicas::Replicas(Options options, std::unique_ptr<comm::Store> store, const RankMemories& memories)
    : options_(std::move(options)),
      store_(std::move(store)),
      memories_(memories),
      server_(server_options(options_)) {
  store_->set(endpoint_key(options_.token), server_.endpoint());
  sender_ = std::jthread([this, own = std::shared_ptr<comm::Store>(store_->clone())](
                             const std::stop_token& stop) { send(stop, *own); });
}

std::unique_ptr<comm::Store> Replicas::connect(const std::string& endpoint) const {
  comm::StoreClientOptions client;
  client.endpoint = endpoint, client.secret = options_.secret, client.tls = options_.tls;
  client.connect_timeout = Duration(3000), client.patience = kPatience;
  client.who = "the launcher of another node";
  return comm::connect_store(client);
}

void Replicas::begin_round(const State& state, const NodePlace& place) {
  fetch(place);
  auto task = std::make_shared<Task>();
  task->first_rank = place.first_rank, task->committed.resize(static_cast<size_t>(place.card.ranks), 0);
  // The next one that does not go with this machine.
  const size_t nodes = state.nodes.size(), self = static_cast<size_t>(place.node);
  for (size_t k = 1; k < nodes && task->peer.empty(); ++k) {
    const NodeCard& card = state.nodes[(self + k) % nodes].card;
    if (!card.one_task_a_rank || card.machine != place.card.machine) task->peer = card.token;
  }
  const std::lock_guard lock(mutex_);
  task_ = std::move(task);
}

void Replicas::fetch(const NodePlace& place) {
  int brought = 0;
  for (int local = 0; local < place.card.ranks; ++local) {
    const int rank = place.first_rank + local, descriptor = memories_.descriptor(local);
    const std::optional<std::string> holder = store_->try_get(holder_key(rank));
    if (memories_.used(local) || !holder || *holder == server_.endpoint()) continue;
    try {
      const std::unique_ptr<comm::Store> store = connect(*holder);
      std::vector<SnapshotCopy> copies;
      for (const int which : {0, 1}) {
        SnapshotCopy copy = get_copy(*store, copy_prefix(rank, which));
        if (copy.commit > 0) copies.push_back(std::move(copy));
      }
      brought += run::write_copies(descriptor, copies);
    } catch (const std::exception&) {
      // Its holder is gone too, or this host has no memory for it: the disk remains.
    }
  }
  if (brought > 0)
    options_.say(fmt::format("fetched snapshots of {} rank{} of this node from another node", brought,
                             brought == 1 ? "" : "s"));
}

// Every snapshot of every rank here, as soon as it is there. What cannot be sent is tried again; ranks go on
// training meanwhile, with the snapshot that they have.
void Replicas::send(const std::stop_token& stop, comm::Store& store) {
  std::string connected;
  std::unique_ptr<comm::Store> peer;
  for (; !stop.stop_requested(); std::this_thread::sleep_for(kPause)) {
    std::shared_ptr<Task> task;
    {
      const std::lock_guard lock(mutex_);
      task = task_;
    }
    if (!task || task->peer.empty()) continue;
    try {
      const std::string endpoint = store.try_get(endpoint_key(task->peer)).value_or("");
      if (endpoint.empty()) continue;
      if (endpoint != connected) peer = connect(endpoint), connected = endpoint;
      for (size_t local = 0; local < task->committed.size() && !stop.stop_requested(); ++local) {
        const int descriptor = memories_.descriptor(static_cast<int>(local)),
                  rank = task->first_rank + static_cast<int>(local);
        int which = 0;
        const SnapshotCopy copy = run::read_newest(descriptor, task->committed[local], which);
        if (copy.commit == 0) continue;
        put_copy(*peer, copy_prefix(rank, which), copy);
        store.set(holder_key(rank), endpoint);
        run::mark_replicated(descriptor, copy.commit);
        task->committed[local] = copy.commit;
      }
    } catch (const std::exception&) {
      connected.clear();  // the node has gone or comes up again, or there is no memory for a copy now
    }
  }
}

}  // namespace lockstep::launch
