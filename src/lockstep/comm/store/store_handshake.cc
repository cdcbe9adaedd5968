#include "lockstep/comm/store/store_handshake.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/store/store_crypto.h"

namespace lockstep::comm {
namespace {

const std::string kProtocol = "lockstep store 3";
constexpr size_t kChallengeBytes = 32;

struct Transcript {
  std::string label;  // "client" or "server"
  const std::string& client_challenge;
  const std::string& server_challenge;
  const std::string& who;
  const std::vector<std::string>& door;  // run and port, or nothing
  int64_t limit = 0;
};

std::vector<std::string> door_of(const std::string& run, int port) {
  if (run.empty()) return {};
  return {run, fmt::format("{}", port)};
}

// Through encode(), so that no two transcripts are the same bytes.
std::string prove(const Secret& secret, const Transcript& transcript) {
  std::vector<std::string> words = {kProtocol, transcript.label, transcript.client_challenge,
                                    transcript.server_challenge, transcript.who};
  words.insert(words.end(), transcript.door.begin(), transcript.door.end());
  return hmac_sha256(secret.bytes(), encode({Code::proof, transcript.limit, std::move(words)}));
}

[[noreturn]] void refuse_server(const std::string& endpoint, const std::string& who, const std::string& why) {
  throw base::ConfigError(
      515, fmt::format("authentication failed between the store at {} and this process ({}): {}", endpoint,
                       who.empty() ? "unnamed" : who, why));
}

}  // namespace

ServerHandshake::ServerHandshake(const Secret& secret, int64_t most_message_bytes, std::string run, int port)
    : secret_(&secret),
      most_message_bytes_(most_message_bytes),
      run_(std::move(run)),
      port_(port),
      mine_(random_bytes(kChallengeBytes)) {}

Message ServerHandshake::refuse(const std::string& why) {
  stage_ = Stage::failed;
  return {Code::refused, 0, {why}};
}

Message ServerHandshake::answer(const Message& message) {
  const std::vector<std::string>& words = message.words;
  if (stage_ == Stage::hello) {
    if (message.code != Code::hello || words.empty()) return refuse("it does not speak the store protocol");
    if (words[0] != kProtocol) return refuse("it has a different version: " + base::quoted(words[0], 40));
    if (words.size() != 4 || words[1].size() != kChallengeBytes || words[2].size() > kMostWhoBytes ||
        words[3].size() > kMostWhoBytes) {
      return refuse("its greeting is malformed");
    }
    if (!words[3].empty() && words[3] != run_) {
      stage_ = Stage::failed;
      return {Code::elsewhere, 0, {}};
    }
    theirs_ = words[1];
    who_ = words[2];
    door_ = door_of(words[3], port_);
    stage_ = Stage::proof;
    return {Code::challenge, 0, {mine_}};
  }
  if (stage_ != Stage::proof || message.code != Code::proof || words.size() != 1) {
    return refuse("its proof is malformed");
  }
  if (!same_secret(words[0], prove(*secret_, {"client", theirs_, mine_, who_, door_}))) {
    return refuse("it does not know this run's secret");
  }
  stage_ = Stage::done;
  return {Code::welcome,
          most_message_bytes_,
          {prove(*secret_, {"server", theirs_, mine_, who_, door_, most_message_bytes_})}};
}

ClientHandshake::ClientHandshake(const Secret& secret, const std::string& who, const std::string& run,
                                 int port)
    : secret_(&secret),
      mine_(random_bytes(kChallengeBytes)),
      who_(who.substr(0, kMostWhoBytes)),
      run_(run.substr(0, kMostWhoBytes)),
      door_(door_of(run_, port)) {}

Message ClientHandshake::hello() const { return {Code::hello, 0, {kProtocol, mine_, who_, run_}}; }

Message ClientHandshake::proof(const Message& challenge, const std::string& endpoint) {
  if (challenge.code == Code::refused && challenge.words.size() == 1) {
    refuse_server(endpoint, who_, "the store says " + base::quoted(challenge.words[0]));
  }
  if (challenge.code != Code::challenge || challenge.words.size() != 1 ||
      challenge.words[0].size() != kChallengeBytes) {
    refuse_server(endpoint, who_, "the server there is not a Lockstep store");
  }
  theirs_ = challenge.words[0];
  return {Code::proof, 0, {prove(*secret_, {"client", mine_, theirs_, who_, door_})}};
}

int64_t ClientHandshake::check_welcome(const Message& welcome, const std::string& endpoint) const {
  if (welcome.code == Code::refused && welcome.words.size() == 1) {
    refuse_server(endpoint, who_, "the store says " + base::quoted(welcome.words[0]));
  }
  const bool formed = welcome.code == Code::welcome && welcome.words.size() == 1 && welcome.number > 0;
  if (!formed || !same_secret(welcome.words[0],
                              prove(*secret_, {"server", mine_, theirs_, who_, door_, welcome.number}))) {
    refuse_server(endpoint, who_, "it could not prove that it knows this run's secret");
  }
  return welcome.number;
}

}  // namespace lockstep::comm
