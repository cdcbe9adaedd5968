// The handshake with somebody in the middle who changes what goes by.
#include "lockstep/comm/store/store_handshake.h"

#include <gtest/gtest.h>

#include <functional>

#include "lockstep/base/refusal.h"
#include "lockstep/comm/store/store_crypto.h"

namespace lockstep::comm {
namespace {

struct Meddled {
  const char* name;
  std::function<void(Message&)> hello, challenge, proof, welcome;
};

void pass(const std::function<void(Message&)>& meddle, Message& message) {
  if (meddle) meddle(message);
}

// What the client ends with: the most bytes of a message, or minus the number of its refusal; 0 when the
// server refused.
int64_t outcome_of(const Meddled& how) {
  const Secret secret("0123456789abcdef0123456789abcdef");
  ServerHandshake server(secret, 4096);
  ClientHandshake client(secret, "rank 3");
  int64_t most = 0;
  const int refused = base::number_of_refusal([&] {
    Message hello = client.hello();
    pass(how.hello, hello);
    Message challenge = server.answer(hello);
    pass(how.challenge, challenge);
    Message proof = client.proof(challenge, "there");
    pass(how.proof, proof);
    Message welcome = server.answer(proof);
    if (!server.done()) return;
    pass(how.welcome, welcome);
    most = client.check_welcome(welcome, "there");
  });
  return refused != 0 ? -refused : most;
}

TEST(StoreHandshake, WhatIsChangedOnTheWayIsRefused) {
  const auto flip = [](size_t word) { return [word](Message& message) { message.words[word].back() ^= 1; }; };
  EXPECT_EQ(outcome_of({"nothing", {}, {}, {}, {}}), 4096);
  const Meddled rows[] = {
      {"the name", [](Message& m) { m.words[2] = "rank 4"; }, {}, {}, {}},
      {"a shorter name", [](Message& m) { m.words[2] = "rank"; }, {}, {}, {}},
      {"no name", [](Message& m) { m.words[2].clear(); }, {}, {}, {}},
      {"the client's challenge", flip(1), {}, {}, {}},
      {"the server's challenge", {}, flip(0), {}, {}},
      {"the proof", {}, {}, flip(0), {}},
  };
  for (const Meddled& row : rows) EXPECT_EQ(outcome_of(row), 0) << row.name;
  EXPECT_EQ(outcome_of({"the welcome", {}, {}, {}, flip(0)}), -515);
  EXPECT_EQ(outcome_of({"the limit", {}, {}, {}, [](Message& m) { m.number *= 2; }}), -515);
}

// Made by hand from the header: who sends which bytes may not change between versions that call themselves
// the same.
TEST(StoreHandshake, ProvesWhatTheHeaderSays) {
  const Secret secret("0123456789abcdef0123456789abcdef");
  const std::string challenge(32, 'c');
  const auto word = [](const std::string& text) {
    return std::string{static_cast<char>(text.size()), 0, 0, 0} + text;
  };
  for (const std::string run : {"", "r"}) {
    ClientHandshake client(secret, "rank 3", run, 20441);
    const Message hello = client.hello();
    std::string body("\3\0\0\0\0\0\0\0\0", 9);  // Code::proof and the number 0
    body +=
        word("lockstep store 3") + word("client") + word(hello.words[1]) + word(challenge) + word("rank 3");
    if (!run.empty()) body += word(run) + word("20441");
    const std::string frame = std::string{static_cast<char>(body.size()), 0, 0, 0} + body;
    EXPECT_EQ(client.proof({Code::challenge, 0, {challenge}}, "there").words,
              std::vector<std::string>{hmac_sha256(secret.bytes(), frame)});
  }
}

// A server cannot be made to prove what a client has to: the labels differ.
TEST(StoreHandshake, AProofSentBackProvesNothing) {
  const Secret secret("0123456789abcdef0123456789abcdef");
  ClientHandshake client(secret, "rank 3");
  const Message proof = client.proof({Code::challenge, 0, {std::string(32, 'c')}}, "there");
  EXPECT_EQ(base::number_of_refusal([&] {
              client.check_welcome({Code::welcome, 4096, proof.words}, "there");
            }),
            515);
}

}  // namespace
}  // namespace lockstep::comm
