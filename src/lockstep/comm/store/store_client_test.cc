// The client: servers that come late, end, fall silent or are not there, and how an endpoint is written.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/comm/store/store_testing.h"

namespace lockstep::comm {
namespace {

TEST(StoreClient, AClientWhoseServerEndsIsTold) {
  auto server = std::make_unique<TestServer>();
  const std::unique_ptr<Store> store = server->connect();
  const std::string endpoint = server->endpoint();
  std::thread ending([&] {
    std::this_thread::sleep_for(50ms);
    server->stop();
  });
  EXPECT_TRUE(contains(base::refusal(517, [&] { store->get("never", 60s); }), endpoint));
  ending.join();
  base::refusal(517, [&] { store->set("k", "v"); });
}

// As when a cable is pulled: the connection stands, and nothing comes.
TEST(StoreClient, AServerThatFallsSilentIsGoneWhenPatienceIs) {
  const Secret secret = Secret::random();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    StoreServer server({.secret = secret});
    const int port = server.port();
    if (::write(ends[1], &port, sizeof port) == sizeof port) ::pause();
    ::_exit(0);
  }
  int port = 0;
  ASSERT_EQ(::read(ends[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  const auto store = connect_store({.endpoint = "127.0.0.1:" + std::to_string(port),
                                    .secret = secret,
                                    .patience = 300ms,
                                    .who = "rank 0"});
  store->set("before", "yes");
  ::kill(child, SIGSTOP);
  ::waitpid(child, nullptr, WUNTRACED);  // until every thread of it stands still
  const auto begin = std::chrono::steady_clock::now();
  try {
    store->add("beat", 1);
    ADD_FAILURE() << "nobody can have answered";
  } catch (const base::CommError& error) {
    EXPECT_EQ(error.number(), 517);
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, 250ms);
  EXPECT_LT(took, 10s);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int end : ends) ::close(end);
}

TEST(StoreClient, AnUnreachableEndpointIsNamedWithinTheTimeout) {
  const Socket taken = listen_at("127.0.0.1", 0);  // accepts, in the kernel, and never answers
  const std::string silent = to_text(local_end(taken));
  std::string closed;
  {
    const Socket gone = listen_at("127.0.0.1", 0);
    closed = to_text(local_end(gone));
  }
  for (const std::string& endpoint : {silent, closed, std::string("no-such-host.invalid:1234")}) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string sentence = base::refusal(514, [&] {
      connect_store({.endpoint = endpoint, .secret = Secret::random(), .connect_timeout = 300ms});
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    EXPECT_TRUE(contains(sentence, endpoint)) << sentence;
  }
}

// A busy node 0 may take longer for the next connection than for the first.
TEST(StoreClient, ClonesHaveTheirOwnTimeToConnect) {
  const Secret secret = Secret::random();
  auto server = std::make_unique<StoreServer>(StoreServerOptions{.secret = secret});
  const int port = server->port();
  std::string problem;
  const auto store = try_connect_store(
      {.endpoint = server->endpoint(), .secret = secret, .connect_timeout = 20s}, 500ms, problem);
  ASSERT_NE(store, nullptr) << problem;
  server.reset();
  std::thread late([&] {
    std::this_thread::sleep_for(1s);
    server = std::make_unique<StoreServer>(StoreServerOptions{.port = port, .secret = secret});
  });
  EXPECT_NO_THROW(store->clone());
  late.join();
}

TEST(StoreClient, AClientWaitsForALateServer) {
  int port = 0;
  {
    const Socket free_port = listen_at("127.0.0.1", 0);
    port = local_end(free_port).port;
  }
  const Secret secret = Secret::random();
  std::unique_ptr<StoreServer> server;
  std::thread late([&] {
    std::this_thread::sleep_for(300ms);
    server = std::make_unique<StoreServer>(StoreServerOptions{.port = port, .secret = secret});
  });
  const auto store =
      connect_store({.endpoint = to_text({"localhost", port}), .secret = secret, .connect_timeout = 10s});
  store->set("k", "v");
  late.join();
}

TEST(StoreClient, EndpointsAreReadStrictly) {
  EXPECT_EQ(parse_endpoint("node1:29400").host, "node1");
  EXPECT_EQ(parse_endpoint("[fd00::1]:29400").host, "fd00::1");
  EXPECT_EQ(parse_endpoint("[fd00::1]:29400").port, 29400);
  EXPECT_EQ(to_text(parse_endpoint("[::1]:80")), "[::1]:80");
  for (const char* text :
       {"", "node1", "node1:", ":29400", "node1:0", "node1:65536", "node1:-1", "node1:29400x", "::1:29400",
        "[]:1", "[::1]", "http://node1:80", "node 1:80", "node1:99999999999"}) {
    EXPECT_TRUE(contains(base::refusal(518, [&] { parse_endpoint(text); }), base::quoted(text))) << text;
  }
}

}  // namespace
}  // namespace lockstep::comm
