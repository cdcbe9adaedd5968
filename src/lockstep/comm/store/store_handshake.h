// How a client and the server of a store prove to each other that they know the run's secret.
//
//     client  hello      its challenge, who it is, whose store it looks for
//     server  challenge  its own
//     client  proof      HMAC-SHA256(secret, "client", both challenges, who, door)
//     server  welcome    HMAC-SHA256(secret, "server", both challenges, who, door, limit)
//
// Challenges are fresh, so what was overheard cannot be played again; the labels differ, so that neither
// side's proof can be sent back to it. The client proves itself first: whoever merely connects learns nothing
// made with the secret. Where both name the run, a client at the wrong door is sent on before any proof: two
// runs may have tried the same port. The proofs then cover the door, too, which is the run and the port (the
// one that the client has dialled; the one that the server listens at): whoever has taken one of the run's
// ports cannot pass for its store by handing all messages on to the port where it is. Pure: messages in,
// messages out.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/store/secret.h"
#include "lockstep/comm/store/store_wire.h"

namespace lockstep::comm {

constexpr int64_t kMostHandshakeBytes = 1024;
constexpr size_t kMostWhoBytes = 200;  // of a client's name, and of a run's

class ServerHandshake {
 public:
  ServerHandshake(const Secret& secret, int64_t most_message_bytes, std::string run = "", int port = 0);
  // The answer to what the client said. Code::refused: it is not let in, and the word says why.
  // Code::elsewhere: it looks for the store of another run.
  Message answer(const Message& message);
  bool done() const { return stage_ == Stage::done; }
  const std::string& who() const { return who_; }  // as the client says, so not to be trusted before done()

 private:
  enum class Stage { hello, proof, done, failed };
  Message refuse(const std::string& why);

  const Secret* secret_;
  int64_t most_message_bytes_;
  std::string run_;
  int port_;
  Stage stage_ = Stage::hello;
  std::string mine_, theirs_, who_;
  std::vector<std::string> door_;  // empty: the client has named no run
};

class ClientHandshake {
 public:
  ClientHandshake(const Secret& secret, const std::string& who, const std::string& run = "", int port = 0);
  Message hello() const;
  // ConfigError 515, with the server's reason, when the answer is not what it should be.
  Message proof(const Message& challenge, const std::string& endpoint);
  int64_t check_welcome(const Message& welcome,
                        const std::string& endpoint) const;  // the most bytes of a message

 private:
  const Secret* secret_;
  std::string mine_, theirs_, who_, run_;
  std::vector<std::string> door_;
};

}  // namespace lockstep::comm
