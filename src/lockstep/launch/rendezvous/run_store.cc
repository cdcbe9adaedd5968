#include "lockstep/launch/rendezvous/run_store.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/store/store_socket.h"
#include "lockstep/launch/rendezvous/network.h"
#include "lockstep/launch/schedulers/rendezvous_file.h"

namespace lockstep::launch {

namespace {

using Clock = std::chrono::steady_clock;
constexpr Duration kAskEvery{20};

std::string who(const Options& options) {
  const std::string number = options.node_rank >= 0 ? fmt::format("node {} on ", options.node_rank) : "";
  return fmt::format("{}{} (process {})", number, base::host_name(), ::getpid());
}

comm::StoreClientOptions client_of(const Options& options, const comm::Secret& secret) {
  comm::StoreClientOptions client;
  client.secret = secret, client.who = who(options), client.tls = options.tls;
  client.patience = options.node_timeout;  // a first node that says nothing has vanished too
  return client;
}

// CommError 536 where nobody answers.
void reach(const RendezvousPoint& point, comm::StoreClientOptions client, Duration timeout, const Say& say,
           RunStore& run_store) {
  std::string problem;
  run_store.connection = reach_store(point, client, timeout, say, problem);
  run_store.endpoint = client.endpoint;
  if (run_store.connection) return;
  throw base::CommError(
      536, fmt::format("no response at {} within {} ({}): is node 0 running and the port open?", point.text(),
                       base::human_duration(static_cast<double>(timeout.count()) / 1000), problem));
}

RunStore open_alone(bool ranks_need_store, bool tls, const Say& say) {
  RunStore run_store;
  if (!ranks_need_store) {
    run_store.connection = comm::make_local_store();
    return run_store;
  }
  run_store.secret = comm::Secret::random();
  comm::StoreServerOptions options;
  options.secret = run_store.secret, options.log = say, options.tls = tls;
  run_store.server = std::make_unique<comm::StoreServer>(options);
  run_store.endpoint = run_store.server->endpoint();
  comm::StoreClientOptions client;
  client.endpoint = run_store.endpoint, client.secret = run_store.secret, client.who = "the launcher",
  client.tls = tls;
  run_store.connection = comm::connect_store(client);
  return run_store;
}

// Whether this node is to hold the store: said, node 0, or (without numbers) the machine that the endpoint
// names.
bool should_hold(const Options& options) {
  if (options.is_host) return *options.is_host;
  if (options.node_rank >= 0) return options.node_rank == 0;
  return is_this_machine(options.endpoint_host);
}

}  // namespace

std::string run_prefix(const std::string& run_id) { return "launch/" + run_id + "/"; }

RunStore join_by_file(const Options& options, const std::string& job, const Say& say) {
  const Clock::time_point deadline = Clock::now() + options.join_timeout - kAskEvery;
  while (!find_rendezvous_file(job) && Clock::now() < deadline) {
    end_if_asked();
    std::this_thread::sleep_for(kAskEvery);
  }
  const StoreAddress found = await_rendezvous_file(job, kAskEvery);
  RunStore run_store;
  run_store.leads = false, run_store.secret = found.secret;
  const comm::Endpoint place = comm::parse_endpoint(found.endpoint);
  reach(given_point(place.host, place.port), client_of(options, found.secret), options.join_timeout, say,
        run_store);
  return run_store;
}

RunStore open_run_store(const Options& given, bool ranks_need_store, Say say) {
  Options options = given;
  options.endpoint_host = reachable(given.endpoint_host);
  if (options.endpoint_host.empty()) return open_alone(ranks_need_store, options.tls, say);
  RunStore run_store;
  run_store.leads = should_hold(options);
  run_store.secret = run_secret(options, run_store.leads, say);
  RendezvousPoint point = point_of(options);
  if (run_store.leads) {
    comm::StoreServerOptions server;
    server.secret = run_store.secret, server.log = say, server.tls = options.tls;
    try {
      run_store.server = hold_store(point, server);
      point.ports = {run_store.server->port()};
    } catch (const base::ConfigError&) {
      // Without numbers another launcher of this machine may have been first.
      if (options.node_rank >= 0 || options.is_host) throw;
      run_store.leads = false;
    }
  }
  reach(point, client_of(options, run_store.secret), options.join_timeout, say, run_store);
  return run_store;
}

}  // namespace lockstep::launch
