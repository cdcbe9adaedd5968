// The chain of a run's logged lines: each line seals itself and every line before it, so that nobody can
// change, remove or invent a step afterwards without its being found out (`lockstep audit`).
//
//     Chain chain(sha256_hex(genesis.to_text()), SigningKey("run-key.pem"));
//     chain.seal(line);      // adds "chain", and "signature" where there is a key
//
// What is sealed of a line is what training computes (sealed_part); times and speeds are not, so a run that
// was restarted, or trained in another layout, has the same chain. Ed25519 signatures are functions of key
// and message alone, and therefore the same too.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/run/shared/signing.h"

namespace lockstep::run {

// The part of a metrics line that its link seals: "step", "loss_hex", "params_hash" and what else the
// recipe alone decides, as JSON with sorted keys. Empty: the line is no step's and no evaluation's.
std::string sealed_part(const nlohmann::json& line);

// chain.json: what a chain begins with, and its digest. `recipe`: config.toml; `record`: record.json.
struct Genesis {
  std::string recipe, record, key_kind, public_pem;
  int64_t first_step = 0;                           // steps done before it began; their lines are in no chain
  std::string to_text() const;                      // the file's bytes, from which the first digest is made
  static Genesis from_text(std::string_view text);  // DataError 338: no chain's beginning
};

class Chain {
 public:
  // `link`: of the line before the first that will be sealed; the genesis' digest where there is none.
  Chain(std::string link, std::optional<SigningKey> key) : link_(std::move(link)), key_(std::move(key)) {}
  void seal(nlohmann::json& line);
  const std::string& link() const { return link_; }

 private:
  std::string link_;
  std::optional<SigningKey> key_;
};

// The link of a line that stands behind `previous`.
std::string next_link(const std::string& previous, const std::string& sealed);

}  // namespace lockstep::run
