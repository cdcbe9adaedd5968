// What the server limits and what it listens to: peers that stay silent or die, floods, addresses.
#include "lockstep/comm/store/store_server.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/comm/store/store_testing.h"

namespace lockstep::comm {
namespace {

int open_descriptors() {
  int count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder)) ++count;
  ::closedir(folder);
  return count;
}

TEST(StoreServer, AStormOfScansDoesNotFillTheLog) {
  TestServer server;
  for (int i = 0; i < 150; ++i) RawPeer(server.endpoint()).close();
  EXPECT_TRUE(server.reported("further rejections within this minute are only counted"));
  expect_serves(server);
  EXPECT_EQ(server.reports().size(), 101u);
}

TEST(StoreServer, DropsAHalfOpenConnectionWhenTheHandshakeTakesTooLong) {
  for (const bool tls : {false, true}) {
    TestServer server({.handshake_timeout = 200ms, .tls = tls});
    RawPeer silent(server.endpoint()), half(server.endpoint());
    half.send(std::string_view("\x50\0", 2));
    expect_serves(server);  // meanwhile
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(silent.dropped());
    EXPECT_TRUE(half.dropped());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    EXPECT_TRUE(server.reported(silent.address() + ": it did not finish the handshake in time"));
    EXPECT_EQ(server.reports().size(), 2u);
  }
}

bool is_known(const std::string& name) {
  try {
    return static_cast<bool>(listen_at(name, 0));
  } catch (const base::ConfigError&) {
    return false;
  }
}

// A name may have several addresses: whoever has the port at the first is who others will find there.
TEST(StoreServer, APortThatIsTakenAtOneAddressOfANameIsTaken) {
  for (const char* name : {"localhost", "lo"}) {
    if (!is_known(name)) continue;
    const Socket taken = listen_at(local_end(listen_at(name, 0)).host, 0);  // ::1 where IPv6 comes first
    EXPECT_THROW(listen_at(name, local_end(taken).port), AddressInUse) << name;
  }
}

TEST(StoreServer, IsBoundToItsAddressOnly) {
  TestServer server({.address = "127.0.0.1"});
  std::string tried;
  const auto reachable = [&](const std::string& host) {
    const Endpoint there{host, server.server().port()};
    return static_cast<bool>(connect_once(there, std::chrono::steady_clock::now() + 2s, tried));
  };
  EXPECT_TRUE(reachable("127.0.0.1"));
  EXPECT_FALSE(reachable("127.0.0.2"));
  EXPECT_FALSE(reachable("::1"));
}

TEST(StoreServer, BindsAnInterfaceByName) {
  TestServer server({.address = "lo"});
  EXPECT_TRUE(contains(server.endpoint(), "127.0.0.1:")) << server.endpoint();
  expect_serves(server);
}

TEST(StoreServer, NamesAnAddressThatItCannotBind) {
  TestServer server;
  StoreServerOptions options{.port = server.server().port(), .secret = Secret::random()};
  EXPECT_TRUE(contains(base::refusal(513, [&] { StoreServer second(options); }),
                       server.endpoint() + ": Address already in use"));
  for (const char* address : {"192.0.2.1", "no-such-host.invalid", ""}) {
    options.address = address;
    EXPECT_TRUE(contains(base::refusal(513, [&] { StoreServer third(options); }), address));
  }
}

TEST(StoreServer, ConnectionsAreLimited) {
  TestServer server({.most_connections = 2});
  {
    const std::unique_ptr<Store> one = server.connect(), two = server.connect();
    const std::string sentence = base::refusal(515, [&] { server.connect("the third"); });
    EXPECT_TRUE(contains(sentence, "all 2 connections are in use")) << sentence;
    EXPECT_TRUE(server.reported("all 2 connections are in use"));
    one->set("k", "v");
    EXPECT_EQ(two->get("k", 1s), "v");
  }
  EXPECT_TRUE(soon([&] { return server.server().connections() == 0; }));
  expect_serves(server);
}

TEST(StoreServer, UnauthenticatedPeersMakeWayForRanks) {
  TestServer server({.most_connections = 2});
  RawPeer idle(server.endpoint()), idle_too(server.endpoint());
  expect_serves(server);
  EXPECT_TRUE(idle.dropped());
  EXPECT_TRUE(server.reported(idle.address() + ": it had not authenticated"));
}

// Idle connections without the secret, more than this process may open files: who knows the secret is served
// all the while, and the others are gone when their time is over.
TEST(StoreServer, AFloodOfConnectionsDoesNotStopIt) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  TestServer server({.most_connections = 65536, .handshake_timeout = 2s});
  const std::unique_ptr<Store> rank = server.connect();
  // The callers, in a process of their own, with descriptors of their own.
  const pid_t flood = ::fork();
  if (flood == 0) {
    std::vector<Socket> open;
    std::string tried;
    for (int k = 0; k < 400; ++k)
      open.push_back(
          connect_once(parse_endpoint(server.endpoint()), std::chrono::steady_clock::now() + 5s, tried));
    ::pause();
  }
  // So few that the flood would fill them all.
  int highest = ::dup(0);
  ::close(highest);
  const rlimit few{static_cast<rlim_t>(highest) + 100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto until = std::chrono::steady_clock::now() + 3s;
  for (int64_t k = 1; std::chrono::steady_clock::now() < until; ++k) {
    ASSERT_EQ(rank->add("count", 1), k);
    ASSERT_NO_THROW(server.connect("a rank that comes later")->set("k", "v"));
  }
  ::kill(flood, SIGKILL);
  ::waitpid(flood, nullptr, 0);
  EXPECT_TRUE(server.reported("had not authenticated"));
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  expect_serves(server);
}

TEST(StoreServer, ValuesAreLimitedOneByOneAndTogether) {
  TestServer server({.most_message_bytes = 10'000, .most_bytes = 20'000});
  const std::unique_ptr<Store> store = server.connect();
  EXPECT_TRUE(
      contains(base::refusal(516, [&] { store->set("large", std::string(11'000, 'x')); }), "\"large\""));
  store->append("grows", std::string(9'000, 'x'));
  base::refusal(516, [&] { store->append("grows", std::string(2'000, 'x')); });
  EXPECT_EQ(store->get("grows", 1s).size(), 9'000u);
  store->set("second", std::string(9'000, 'x'));
  EXPECT_TRUE(contains(base::refusal(516, [&] { store->set("third", std::string(9'000, 'x')); }), "full"));
  store->remove("second");
  store->set("third", std::string(9'000, 'x'));
  base::refusal(516, [&] {
    for (int i = 0; i < 1000; ++i) store->set("empty" + std::to_string(i), "");  // costs as well
  });
  EXPECT_EQ(store->get("third", 1s).size(), 9'000u);
}

TEST(StoreServer, ARankThatDiesWhileItWaitsLeavesNothingBehind) {
  TestServer server;
  const std::unique_ptr<Store> store = server.connect();
  const int before = open_descriptors();
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      RawPeer peer(
          server.endpoint());  // plain sockets: a forked child of a threaded process must not allocate much
      peer.shake_hands(server.secret(), "doomed");
      peer.send(Message{Code::pop, 60'000, {"work"}});
      ::pause();
    }
    ASSERT_TRUE(soon([&] { return server.server().connections() == 2; }));
    std::this_thread::sleep_for(20ms);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(soon([&] { return server.server().connections() == 1; }));
  }
  store->push("work", "1");
  EXPECT_EQ(store->pop("work", 0ms), "1");  // nothing went to the dead
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(server.reports().empty()) << base::join(server.reports(), "\n");
}

}  // namespace
}  // namespace lockstep::comm
