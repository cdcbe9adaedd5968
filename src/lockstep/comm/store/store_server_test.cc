// The server against peers that fail, meddle or lie. Whatever they do, a client that waits is served.
#include "lockstep/comm/store/store_server.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "lockstep/comm/store/store_crypto.h"
#include "lockstep/comm/store/store_testing.h"

namespace lockstep::comm {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Set by one connection, got by another: the server works.
void expect_serves(TestServer& server) {
  const std::unique_ptr<Store> one = server.connect("one"), other = server.connect("other");
  one->set("alive", "yes");
  EXPECT_EQ(other->get("alive", 5s), "yes");
}

int open_descriptors() {
  int count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder)) ++count;
  ::closedir(folder);
  return count;
}

struct Meddler {
  std::string name;
  std::function<void(TestServer&, RawPeer&)> act;
  std::string reported;  // in the sentence about it
};

std::vector<Meddler> meddlers() {
  const auto authenticated = [](Message message) {
    return [message](TestServer& server, RawPeer& peer) {
      peer.shake_hands(server.secret(), "rank 7");
      peer.send(message);
    };
  };
  return {
      {"scan", [](TestServer&, RawPeer& peer) { peer.close(); }, "sent nothing"},
      {"http", [](TestServer&, RawPeer& peer) { peer.send("GET / HTTP/1.1\r\n\r\n"); }, "GET /"},
      {"ssh", [](TestServer&, RawPeer& peer) { peer.send("SSH-2.0-OpenSSH_9.2\r\n"); }, "SSH-2.0"},
      {"tls", [](TestServer&, RawPeer& peer) { peer.send("\x16\x03\x01\x02\x05\x01"); }, "uses TLS"},
      {"short_garbage", [](TestServer&, RawPeer& peer) { peer.send(std::string("\2\0\0\0xy", 6)); },
       "malformed"},
      {"half_a_greeting",
       [](TestServer&, RawPeer& peer) {
         peer.send(std::string("\x50\0\0\0\1", 5));
         peer.close();
       },
       "closed the connection"},
      {"no_greeting",
       [](TestServer&, RawPeer& peer) {
         peer.send(Message{Code::keys, 0, {}});
       },
       "store protocol"},
      {"other_version",
       [](TestServer&, RawPeer& peer) {
         peer.send(Message{Code::hello, 0, {"lockstep store 9", "", ""}});
       },
       "lockstep store 9"},
      {"long_name",
       [](TestServer&, RawPeer& peer) {
         peer.send(
             Message{Code::hello, 0, {"lockstep store 3", std::string(32, 'c'), std::string(300, 'w'), ""}});
       },
       "malformed"},
      {"long_run",
       [](TestServer&, RawPeer& peer) {
         peer.send(Message{
             Code::hello, 0, {"lockstep store 3", std::string(32, 'c'), "eve", std::string(300, 'r')}});
       },
       "malformed"},
      {"greeting_without_run",
       [](TestServer&, RawPeer& peer) {
         peer.send(Message{Code::hello, 0, {"lockstep store 3", std::string(32, 'c'), "eve"}});
       },
       "malformed"},
      {"large_greeting",
       [](TestServer&, RawPeer& peer) {
         peer.send(Message{Code::hello, 0, {"lockstep store 3", std::string(2000, 'c'), "", ""}});
       },
       "1024"},
      {"proof_of_zeros",
       [](TestServer&, RawPeer& peer) {
         peer.send(Message{Code::hello, 0, {"lockstep store 3", std::string(32, 'c'), "eve", ""}});
         peer.hear();
         peer.send(Message{Code::proof, 0, {std::string(32, '\0')}});
       },
       "(\"eve\"): it does not know this run's secret"},
      {"empty_proof",
       [](TestServer&, RawPeer& peer) {
         peer.send(Message{Code::hello, 0, {"lockstep store 3", std::string(32, 'c'), "eve", ""}});
         peer.hear();
         peer.send(Message{Code::proof, 0, {""}});
       },
       "secret"},
      {"request_instead_of_proof",
       [](TestServer&, RawPeer& peer) {
         peer.send(Message{Code::hello, 0, {"lockstep store 3", std::string(32, 'c'), "eve", ""}});
         peer.hear();
         peer.send(Message{Code::set, 0, {"alive", "no"}});
       },
       "proof is malformed"},
      {"too_few_words", authenticated({Code::set, 0, {"key"}}), "(\"rank 7\"): a malformed request"},
      {"too_many_words", authenticated({Code::keys, 0, {"key"}}), "malformed request"},
      {"get_without_key", authenticated({Code::get, 10, {}}), "malformed request"},
      {"reply_as_request", authenticated({Code::ok, 0, {}}), "malformed request"},
      {"second_greeting", authenticated({Code::hello, 0, {"lockstep store 3", "", "", ""}}),
       "malformed request"},
      {"unknown_code", authenticated({static_cast<Code>(99), 0, {}}), "malformed message"},
      {"oversized_message", authenticated({Code::set, 0, {"key", std::string(200'000, 'v')}}), "100000"},
      {"word_beyond_the_end",
       [](TestServer& server, RawPeer& peer) {
         peer.shake_hands(server.secret(), "rank 7");
         peer.send(std::string("\x0d\0\0\0\x06\0\0\0\0\0\0\0\0\xff\xff\xff\xff", 17));
       },
       "malformed message"},
      {"speaks_while_it_waits",
       [](TestServer& server, RawPeer& peer) {
         peer.shake_hands(server.secret(), "rank 7");
         peer.send(Message{Code::get, 60'000, {"never"}});
         peer.send(Message{Code::get, 60'000, {"never"}});
       },
       "out of turn"},
  };
}

class Meddlers : public testing::TestWithParam<Meddler> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Meddlers, testing::ValuesIn(meddlers()),
                         [](const auto& row) { return row.param.name; });

TEST_P(Meddlers, IsNamedDroppedAndDisturbsNobody) {
  TestServer server({.most_message_bytes = 100'000});
  const std::unique_ptr<Store> waiting = server.connect("waiting");
  std::thread patient([&] { EXPECT_EQ(waiting->get("late", 20s), "came"); });
  RawPeer peer(server.endpoint());
  const std::string address = peer.address();
  GetParam().act(server, peer);
  EXPECT_TRUE(server.reported(GetParam().reported)) << base::join(server.reports(), "\n");
  EXPECT_TRUE(server.reported(address)) << base::join(server.reports(), "\n");
  EXPECT_TRUE(peer.dropped());
  EXPECT_EQ(server.reports().size(), 1u) << base::join(server.reports(), "\n");
  expect_serves(server);
  server.connect()->set("late", "came");
  patient.join();
  EXPECT_TRUE(soon([&] { return server.server().connections() == 1; }));
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

bool is_known(const std::string& name) {
  try {
    return static_cast<bool>(listen_at(name, 0));
  } catch (const base::ConfigError&) {
    return false;
  }
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

TEST(StoreServer, StrangersMakeWayForRanks) {
  TestServer server({.most_connections = 2});
  RawPeer idle(server.endpoint()), idle_too(server.endpoint());
  expect_serves(server);
  EXPECT_TRUE(idle.dropped());
  EXPECT_TRUE(server.reported(idle.address() + ": it had not authenticated"));
}

// Idle connections without the secret, more than this process may open files: who knows the secret is served
// all the while, and the strangers are gone when their time is over.
TEST(StoreServer, AFloodOfStrangersDoesNotStopIt) {
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

TEST(StoreServer, AClientWhoseServerEndsIsTold) {
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
TEST(StoreServer, AServerThatFallsSilentIsGoneWhenPatienceIs) {
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

TEST(StoreServer, AnUnreachableEndpointIsNamedWithinTheTimeout) {
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
TEST(StoreServer, ClonesHaveTheirOwnTimeToConnect) {
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

TEST(StoreServer, AClientWaitsForALateServer) {
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

TEST(StoreServer, EndpointsAreReadStrictly) {
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

// Random bytes, before and after the handshake: nothing but drops, and the server serves on.
TEST(StoreServer, SurvivesRandomBytes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  TestServer server({.most_message_bytes = 100'000, .handshake_timeout = 300ms});
  for (int round = 0; round < 150; ++round) {
    RawPeer peer(server.endpoint());
    if (random() % 2) peer.shake_hands(server.secret(), "fuzz");
    for (uint64_t message = random() % 4; message > 0; --message) {
      std::string bytes =
          encode({static_cast<Code>(random() % 24), static_cast<int64_t>(random() % 3), {"a", "bc"}});
      for (uint64_t flips = random() % 3; flips > 0; --flips)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      if (random() % 4 == 0) bytes.resize(random() % bytes.size());
      peer.send(bytes);
    }
  }
  expect_serves(server);
  EXPECT_TRUE(soon([&] { return server.server().connections() == 0; }));
}

TEST(StoreServer, DecodesWhatItEncodedAndNothingElse) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    Message message{static_cast<Code>(1 + random() % 21), static_cast<int64_t>(random()), {}};
    for (uint64_t i = random() % 4; i > 0; --i) message.words.push_back(random_bytes(random() % 20));
    const std::string frame = encode(message);
    FrameBuffer buffer;
    for (const char byte : frame) {
      EXPECT_FALSE(buffer.take());
      buffer.add({&byte, 1});
    }
    const std::string body = buffer.take().value();
    const std::optional<Message> again = decode(body);
    ASSERT_TRUE(again);
    EXPECT_EQ(encode(*again), frame);
    // Cut anywhere but between words, it is no message.
    if (!message.words.empty() && !message.words.back().empty()) {
      EXPECT_FALSE(decode(body.substr(0, body.size() - 1)));
    }
    decode(random_bytes(random() % 40));  // must only not crash
  }
}

}  // namespace
}  // namespace lockstep::comm
