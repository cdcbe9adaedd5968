// The server against peers that meddle: whatever they send, they are named and dropped, and a client that
// waits is served.
#include <gtest/gtest.h>

#include <random>

#include "lockstep/comm/store/store_crypto.h"
#include "lockstep/comm/store/store_testing.h"

namespace lockstep::comm {
namespace {

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
