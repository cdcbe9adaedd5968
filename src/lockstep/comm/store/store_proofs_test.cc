// Who is let in: both sides prove that they know the run's secret, and which run and port they mean.
#include <gtest/gtest.h>

#include "lockstep/comm/store/store_crypto.h"
#include "lockstep/comm/store/store_testing.h"

namespace lockstep::comm {
namespace {

TEST(StoreServer, BothSidesNameARefusedPeer) {
  for (const bool tls : {false, true}) {
    TestServer server({.tls = tls});
    StoreClientOptions options = server.client("rank 3 on host b");
    options.secret = Secret::random();
    const std::string sentence = base::refusal(515, [&] { connect_store(options); });
    EXPECT_TRUE(contains(sentence, server.endpoint()) && contains(sentence, "rank 3 on host b")) << sentence;
    EXPECT_TRUE(contains(sentence, "secret")) << sentence;
    EXPECT_TRUE(server.reported("(\"rank 3 on host b\")")) << base::join(server.reports(), "\n");
    EXPECT_TRUE(server.reported("secret")) << base::join(server.reports(), "\n");
    expect_serves(server);
  }
}

TEST(StoreServer, OneSideWithoutTlsIsSaidSo) {
  TestServer plain, sealed({.tls = true});
  StoreClientOptions wants_tls = plain.client(), wants_plain = sealed.client();
  wants_tls.tls = true;
  wants_tls.connect_timeout = 1s;
  wants_plain.tls = false;
  wants_plain.connect_timeout = 1s;
  EXPECT_TRUE(contains(base::refusal(515, [&] { connect_store(wants_tls); }), "TLS"));
  EXPECT_TRUE(plain.reported("uses TLS"));
  EXPECT_TRUE(contains(base::refusal(515, [&] { connect_store(wants_plain); }), "TLS"));
  EXPECT_TRUE(sealed.reported("does not use TLS"));
}

// What an honest client said, sent once more: the server's challenge is another one by then.
TEST(StoreServer, AReplayedHandshakeIsRefused) {
  TestServer server;
  ClientHandshake honest(server.secret(), "rank 1");
  RawPeer first(server.endpoint()), second(server.endpoint());
  first.send(honest.hello());
  const Message proof = honest.proof(first.hear().value(), "");
  first.send(proof);
  EXPECT_EQ(first.hear().value().code, Code::welcome);
  second.send(honest.hello());
  EXPECT_EQ(second.hear().value().code, Code::challenge);
  second.send(proof);
  EXPECT_EQ(second.hear().value().code, Code::refused);
  EXPECT_TRUE(server.reported("it does not know this run's secret"));
}

TEST(StoreServer, AServersProofIsNoClientsProof) {
  const Secret secret = Secret::random();
  ServerHandshake server(secret, 1000);
  ClientHandshake client(secret, "rank 1");
  const Message challenge = server.answer(client.hello());
  const Message proof = client.proof(challenge, "");
  const Message welcome = server.answer(proof);
  ASSERT_EQ(welcome.code, Code::welcome);
  EXPECT_EQ(client.check_welcome(welcome, ""), 1000);
  Message forged = welcome;
  forged.number = 1'000'000;  // the limit is under the proof as well
  base::refusal(515, [&] { client.check_welcome(forged, ""); });
  base::refusal(515, [&] { client.check_welcome({Code::welcome, 1000, {proof.words[0]}}, ""); });
}

// Something that accepts everybody, to get at what ranks say.
TEST(StoreServer, AClientRefusesAServerThatCannotProveItself) {
  const Socket listener = listen_at("127.0.0.1", 0);
  std::thread impostor([&] {
    wait_readable(listener, std::chrono::steady_clock::now() + 5s);
    int error = 0;
    const Socket victim = accept_from(listener, error);
    const auto say = [&](const Message& message) {
      const std::string frame = encode(message);
      ::send(victim.number(), frame.data(), frame.size(), MSG_NOSIGNAL);
    };
    say({Code::challenge, 0, {random_bytes(32)}});
    say({Code::welcome, 1 << 20, {random_bytes(32)}});
    std::this_thread::sleep_for(100ms);
  });
  const std::string sentence = base::refusal(515, [&] {
    connect_store(
        {.endpoint = to_text(local_end(listener)), .secret = Secret::random(), .connect_timeout = 5s});
  });
  EXPECT_TRUE(contains(sentence, "could not prove")) << sentence;
  impostor.join();
}

// Two runs may have derived the same port. Their ranks may even know the same secret, their user's.
TEST(StoreServer, ThoseWhoLookForAnotherRunAreSentOn) {
  TestServer ours({.run = "ours"}), nameless;
  struct Row {
    const char* looks_for;
    const TestServer* server;
    const char* problem;  // empty: it is let in
  };
  const Row rows[] = {{"ours", &ours, ""},
                      {"", &ours, ""},
                      {"", &nameless, ""},
                      {"theirs", &ours, "another run's store is there"},
                      {"our", &ours, "another run's store is there"},
                      {"theirs", &nameless, "another run's store is there"}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.looks_for);
    StoreClientOptions client = row.server->client();
    client.run = row.looks_for;
    std::string problem;
    EXPECT_EQ(try_connect_store_once(client, 5s, problem) != nullptr, std::string(row.problem).empty());
    EXPECT_TRUE(contains(problem, row.problem)) << problem;
  }
  EXPECT_TRUE(ours.reports().empty() && nameless.reports().empty()) << "no harm was meant";
  StoreClientOptions wrong = ours.client();
  wrong.run = "ours", wrong.secret = Secret::random();
  std::string problem;
  base::refusal(515, [&] { try_connect_store_once(wrong, 5s, problem); });
}

// Who has a port of the run but not its secret lets the true store and a rank prove themselves to each other.
TEST(StoreServer, AProofThatIsHandedOnFromAnotherPortIsRefused) {
  TestServer server({.run = "ours"});
  const Relay relay(server.endpoint());
  StoreClientOptions client = server.client();
  client.endpoint = relay.endpoint();
  std::string problem;
  EXPECT_NE(try_connect_store_once(client, 5s, problem), nullptr) << "the relay itself works: " << problem;
  client.run = "ours";
  base::refusal(515, [&] { try_connect_store_once(client, 5s, problem); });
  EXPECT_EQ(relay.handed_on(), 2);
  EXPECT_TRUE(server.reported("does not know this run's secret"));
  client.endpoint = server.endpoint();
  EXPECT_NE(try_connect_store_once(client, 5s, problem), nullptr) << problem;
}

TEST(StoreServer, WhoIsAtADoorIsTold) {
  TestServer ours({.run = "ours"}), theirs({.run = "theirs"});
  const Socket silent = listen_at("127.0.0.1", 0);
  std::string closed;
  {
    const Socket gone = listen_at("127.0.0.1", 0);
    closed = to_text(local_end(gone));
  }
  const std::pair<std::string, Door> rows[] = {{ours.endpoint(), Door::ours},
                                               {theirs.endpoint(), Door::foreign},
                                               {to_text(local_end(silent)), Door::silent},
                                               {closed, Door::nobody}};
  for (const auto& [endpoint, expected] : rows) {
    StoreClientOptions client = ours.client();
    client.endpoint = endpoint, client.run = "ours";
    std::string problem;
    Door door{};
    const Duration patience = expected == Door::silent ? 200ms : 5s;
    EXPECT_EQ(try_connect_store_once(client, patience, problem, door) != nullptr, expected == Door::ours);
    EXPECT_EQ(door, expected) << endpoint << " " << problem;
  }
}

}  // namespace
}  // namespace lockstep::comm
