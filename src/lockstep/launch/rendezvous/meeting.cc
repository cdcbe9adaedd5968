#include "lockstep/launch/rendezvous/meeting.h"

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
void reach(const MeetingPoint& point, comm::StoreClientOptions client, Duration timeout, const Say& say,
           Meeting& meeting) {
  std::string problem;
  meeting.store = reach_store(point, client, timeout, say, problem);
  meeting.endpoint = client.endpoint;
  if (meeting.store) return;
  throw base::CommError(
      536, fmt::format("no response at {} within {} ({}): is node 0 running and the port open?", point.text(),
                       base::human_duration(static_cast<double>(timeout.count()) / 1000), problem));
}

Meeting meet_alone(bool ranks_need_store, bool tls, const Say& say) {
  Meeting meeting;
  if (!ranks_need_store) {
    meeting.store = comm::make_local_store();
    return meeting;
  }
  meeting.secret = comm::Secret::random();
  comm::StoreServerOptions options;
  options.secret = meeting.secret, options.log = say, options.tls = tls;
  meeting.server = std::make_unique<comm::StoreServer>(options);
  meeting.endpoint = meeting.server->endpoint();
  comm::StoreClientOptions client;
  client.endpoint = meeting.endpoint, client.secret = meeting.secret, client.who = "the launcher",
  client.tls = tls;
  meeting.store = comm::connect_store(client);
  return meeting;
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

Meeting join_by_file(const Options& options, const std::string& job, const Say& say) {
  const Clock::time_point deadline = Clock::now() + options.join_timeout - kAskEvery;
  while (!find_rendezvous_file(job) && Clock::now() < deadline) {
    end_if_asked();
    std::this_thread::sleep_for(kAskEvery);
  }
  const StoreAddress found = await_rendezvous_file(job, kAskEvery);
  Meeting meeting;
  meeting.leads = false, meeting.secret = found.secret;
  const comm::Endpoint place = comm::parse_endpoint(found.endpoint);
  reach(given_point(place.host, place.port), client_of(options, found.secret), options.join_timeout, say,
        meeting);
  return meeting;
}

Meeting open_meeting(const Options& given, bool ranks_need_store, Say say) {
  Options options = given;
  options.endpoint_host = reachable(given.endpoint_host);
  if (options.endpoint_host.empty()) return meet_alone(ranks_need_store, options.tls, say);
  Meeting meeting;
  meeting.leads = should_hold(options);
  meeting.secret = meeting_secret(options, meeting.leads, say);
  MeetingPoint point = point_of(options);
  if (meeting.leads) {
    comm::StoreServerOptions server;
    server.secret = meeting.secret, server.log = say, server.tls = options.tls;
    try {
      meeting.server = hold_store(point, server);
      point.ports = {meeting.server->port()};
    } catch (const base::ConfigError&) {
      // Without numbers another launcher of this machine may have been first.
      if (options.node_rank >= 0 || options.is_host) throw;
      meeting.leads = false;
    }
  }
  reach(point, client_of(options, meeting.secret), options.join_timeout, say, meeting);
  return meeting;
}

}  // namespace lockstep::launch
