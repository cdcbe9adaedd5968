// Ports that are derived, among others who have taken some of them.
#include "lockstep/launch/rendezvous/rendezvous_point.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>
#include <thread>

#include "lockstep/base/refusal.h"
#include "lockstep/comm/store/store_socket.h"
#include "lockstep/comm/store/store_testing.h"
#include "lockstep/launch/rendezvous/network.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using comm::contains;

const comm::Secret& secret() {
  static const comm::Secret one = comm::Secret::random();
  return one;
}

// Of a job that no other test process derives ports from, with all of them free.
RendezvousPoint free_point() {
  for (int k = 0;; ++k) {
    RendezvousPoint point = agreed_point("127.0.0.1", fmt::format("test {} {}", ::getpid(), k));
    point.patience = 700ms;
    if (std::all_of(point.ports.begin(), point.ports.end(), port_is_free)) return point;
  }
}

comm::StoreServerOptions server_options() {
  comm::StoreServerOptions options;
  options.secret = secret();
  return options;
}

struct Search {
  std::unique_ptr<comm::Store> store;
  std::string endpoint, problem, said;
};

Search search(const RendezvousPoint& point, Duration timeout) {
  comm::StoreClientOptions client;
  client.secret = secret(), client.who = "node 1";
  Search found;
  found.store = reach_store(
      point, client, timeout, [&](const std::string& text) { found.said += text + "\n"; }, found.problem);
  found.endpoint = client.endpoint;
  return found;
}

TEST(RendezvousPoint, PortsOfAJobAreDifferentAndNotTheKernels) {
  for (int job = 0; job < 1000; ++job) {
    const RendezvousPoint point = agreed_point("node0", std::to_string(job));
    EXPECT_EQ(std::set<int>(point.ports.begin(), point.ports.end()).size(), point.ports.size());
    for (const int port : point.ports) EXPECT_TRUE(port >= 20000 && port < 32000) << port;
  }
  EXPECT_NE(agreed_point("node0", "a").run, agreed_point("node0", "b").run);
  EXPECT_EQ(agreed_point("fd00::1", "a").text().substr(0, 15), "fd00::1 (ports ");
  EXPECT_EQ(given_point("fd00::1", 7).text(), "[fd00::1]:7");
}

// Who has the first ports: nobody, another run (with our user's secret), a program that says nothing, one
// that speaks another language.
TEST(RendezvousPoint, WhoHasAPortAlreadyIsPassedOver) {
  for (size_t taken = 0; taken < 4; ++taken) {
    SCOPED_TRACE(taken);
    const RendezvousPoint point = free_point();
    std::optional<comm::StoreServer> another, tls;
    std::optional<comm::Socket> silent;
    comm::StoreServerOptions theirs = server_options();
    theirs.run = "theirs", theirs.port = point.ports[0];
    if (taken > 0) another.emplace(theirs);
    if (taken > 1) silent = comm::listen_at("127.0.0.1", point.ports[1]);
    theirs.tls = true, theirs.port = point.ports[2];
    if (taken > 2) tls.emplace(theirs);
    const auto server = hold_store(point, server_options());
    EXPECT_EQ(server->port(), point.ports[taken]);
    const Search found = search(point, 20s);
    ASSERT_NE(found.store, nullptr) << found.problem;
    EXPECT_EQ(found.endpoint, point.endpoint(taken));
    if (taken > 0) {
      EXPECT_EQ(another->connections(), 0);
    }
    EXPECT_TRUE(
        contains(base::refusal(528, [&] { hold_store(point, server_options()); }), point.endpoint(taken)));
  }
}

TEST(RendezvousPoint, WhereNobodyAnswersWhatWasFoundIsSaid) {
  const RendezvousPoint point = free_point();
  comm::StoreServerOptions theirs = server_options();
  theirs.run = "theirs", theirs.port = point.ports[1];
  const comm::StoreServer another(theirs);
  const Search found = search(point, 2s);
  EXPECT_EQ(found.store, nullptr);
  EXPECT_TRUE(contains(found.problem, point.endpoint(0) + ": Connection refused")) << found.problem;
  EXPECT_TRUE(contains(found.problem, point.endpoint(1) + ": another run's store is there")) << found.problem;
  EXPECT_TRUE(contains(found.said, "waiting for node 0 at " + point.text())) << found.said;
}

TEST(RendezvousPoint, AnotherSecretIsSaidAtOnce) {
  const RendezvousPoint point = free_point();
  comm::StoreServerOptions options = server_options();
  options.secret = comm::Secret::random();
  const auto server = hold_store(point, options);
  base::refusal(515, [&] { search(point, 60s); });
}

// An intruder at the first port that hands everything on to the store; and a store that has another secret.
TEST(RendezvousPoint, WhoCannotProveItselfIsPassedOver) {
  const RendezvousPoint point = free_point();
  comm::StoreServerOptions foreign = server_options();
  foreign.secret = comm::Secret::random(), foreign.run = point.run, foreign.port = point.ports[1];
  const comm::StoreServer another(foreign);
  comm::StoreServerOptions options = server_options();
  options.run = point.run, options.port = point.ports[2];
  const comm::StoreServer server(options);
  const comm::Relay relay(server.endpoint(), point.ports[0]);
  const Search found = search(point, 20s);
  ASSERT_NE(found.store, nullptr) << found.problem;
  EXPECT_EQ(found.endpoint, point.endpoint(2));
  EXPECT_EQ(relay.handed_on(), 1);
}

TEST(RendezvousPoint, AStoreOfThatNameWithAnotherSecretIsNamedToTheFirstNode) {
  const RendezvousPoint point = free_point();
  comm::StoreServerOptions theirs = server_options();
  theirs.secret = comm::Secret::random(), theirs.run = point.run, theirs.port = point.ports[1];
  const comm::StoreServer another(theirs);
  const std::string sentence = base::refusal(515, [&] { hold_store(point, server_options()); });
  EXPECT_TRUE(contains(sentence, point.endpoint(1) + "; choose another --rdzv-id")) << sentence;
}

// What had the first port when the other began has ended since.
TEST(RendezvousPoint, ASecondFirstNodeIsFoundBehindAFreePort) {
  const RendezvousPoint point = free_point();
  comm::StoreServerOptions options = server_options();
  options.run = point.run, options.port = point.ports[3];
  const comm::StoreServer first(options);
  EXPECT_TRUE(contains(base::refusal(528, [&] { hold_store(point, server_options()); }), point.endpoint(3)));
}

TEST(RendezvousPoint, AnEarlierStartOfTheJobMayTakeAMomentToEnd) {
  RendezvousPoint point = free_point();
  point.patience = 10s;
  auto earlier = hold_store(point, server_options());
  std::thread end([&] {
    std::this_thread::sleep_for(300ms);
    earlier.reset();
  });
  EXPECT_EQ(hold_store(point, server_options())->port(), point.ports[0]);
  end.join();
}

TEST(RendezvousPoint, AllPortsTakenIsSaidWithThem) {
  const RendezvousPoint point = free_point();
  std::vector<comm::Socket> all;
  for (const int port : point.ports) all.push_back(comm::listen_at("127.0.0.1", port));
  const std::string sentence = base::refusal(513, [&] { hold_store(point, server_options()); });
  EXPECT_TRUE(contains(sentence, point.text()) && contains(sentence, "--rdzv-endpoint")) << sentence;
  const RendezvousPoint given = given_point("127.0.0.1", point.ports[0]);
  EXPECT_TRUE(contains(base::refusal(513, [&] { hold_store(given, server_options()); }), given.text()));
}

}  // namespace
}  // namespace lockstep::launch
