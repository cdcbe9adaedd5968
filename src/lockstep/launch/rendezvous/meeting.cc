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

// Signals are blocked by now; one that asks to end takes its usual course.
void end_if_asked() {
  sigset_t pending;
  sigpending(&pending);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (!sigismember(&pending, number)) continue;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  }
}

}  // namespace

std::unique_ptr<comm::Store> connect_patiently(const comm::StoreClientOptions& wanted, Duration timeout,
                                               const Say& say) {
  const Clock::time_point begin = Clock::now();
  std::string told;
  for (;;) {
    const Duration left = timeout - std::chrono::duration_cast<Duration>(Clock::now() - begin);
    const Duration turn = std::clamp(left, Duration(1), Duration(1500));
    std::string problem;
    if (auto store = comm::try_connect_store(wanted, turn, problem)) return store;
    end_if_asked();
    if (left <= turn) {
      throw base::CommError(
          536, fmt::format("no response at {} within {} ({}): is node 0 running and the port open?",
                           wanted.endpoint, base::human_duration(static_cast<double>(timeout.count()) / 1000),
                           problem));
    }
    // A name that nobody knows will hardly become known, but that is for the user to see.
    if (problem != told) say(fmt::format("waiting for node 0 at {} ({})", wanted.endpoint, problem));
    told = problem;
  }
}

namespace {

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

std::string endpoint_text(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Meeting join_by_file(const Options& options, const std::string& job, const Say& say) {
  const Clock::time_point deadline = Clock::now() + options.join_timeout - kAskEvery;
  while (!find_rendezvous_file(job) && Clock::now() < deadline) {
    end_if_asked();
    std::this_thread::sleep_for(kAskEvery);
  }
  const StoreAddress found = await_rendezvous_file(job, kAskEvery);
  Meeting meeting;
  meeting.leads = false, meeting.endpoint = found.endpoint, meeting.secret = found.secret;
  comm::StoreClientOptions client;
  client.endpoint = meeting.endpoint, client.secret = meeting.secret, client.who = who(options);
  client.tls = options.tls, client.patience = options.node_timeout;
  meeting.store = connect_patiently(client, options.join_timeout, say);
  return meeting;
}

Meeting open_meeting(const Options& given, bool ranks_need_store, Say say) {
  Options options = given;
  options.endpoint_host = reachable(given.endpoint_host);
  if (options.endpoint_host.empty()) return meet_alone(ranks_need_store, options.tls, say);
  Meeting meeting;
  meeting.leads = should_hold(options);
  meeting.secret = meeting_secret(options, meeting.leads, say);
  meeting.endpoint = endpoint_text(options.endpoint_host, options.endpoint_port);
  if (meeting.leads) {
    comm::StoreServerOptions server;
    server.address = options.endpoint_host, server.port = options.endpoint_port;
    server.secret = meeting.secret, server.log = say, server.tls = options.tls;
    try {
      meeting.server = std::make_unique<comm::StoreServer>(server);
      meeting.endpoint = endpoint_text(options.endpoint_host, meeting.server->port());
    } catch (const base::ConfigError&) {
      // Without numbers another launcher of this machine may have been first.
      if (options.node_rank >= 0 || options.is_host) throw;
      meeting.leads = false;
    }
  }
  comm::StoreClientOptions client;
  client.endpoint = meeting.endpoint, client.secret = meeting.secret, client.who = who(options);
  client.tls = options.tls;
  client.patience = options.node_timeout;  // a first node that says nothing has vanished too
  meeting.store = connect_patiently(client, options.join_timeout, say);
  return meeting;
}

}  // namespace lockstep::launch
