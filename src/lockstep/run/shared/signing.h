// Keys that sign the links of a chain: Ed25519 from PEM files, HMAC-SHA256 from any secret file; OpenSSL.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lockstep::run {

std::string sha256_hex(std::string_view text);

// A key from a file: Ed25519 in PEM (private: signs and checks; public: checks), or any other file of 16
// bytes or more, a secret for HMAC-SHA256. ConfigError 337: no such file, one that others can read though it
// is secret, or no key.
class SigningKey {
 public:
  explicit SigningKey(const std::string& path);
  static SigningKey from_public_pem(const std::string& pem);  // ConfigError 337
  ~SigningKey();
  SigningKey(SigningKey&&) noexcept;
  SigningKey& operator=(SigningKey&&) noexcept;

  bool can_sign() const;
  std::string sign(std::string_view text) const;  // hex
  bool has_signed(std::string_view text, std::string_view signature) const;
  std::string kind() const;         // "ed25519" or "hmac-sha256"
  std::string public_pem() const;   // of Ed25519; empty for a secret
  std::string fingerprint() const;  // 16 digits that tell it from others, and tell nothing of a secret

 private:
  struct Key;
  explicit SigningKey(std::unique_ptr<Key> key);
  std::unique_ptr<Key> key_;
};

// A new Ed25519 key: `path` for its owner alone, `path`.pub for everybody. ConfigError 110: one exists.
void make_signing_key(const std::string& path);

}  // namespace lockstep::run
