#include "lockstep/comm/store/store_crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

constexpr int kDigestBytes = 32;
constexpr int kStretchRounds = 200'000;
constexpr std::string_view kStretchSalt = "lockstep run secret 1";

const unsigned char* raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* raw(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

}  // namespace

void start_openssl() {
  LS_ASSERT(OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr) == 1);
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  start_openssl();
  std::string digest(kDigestBytes, '\0');
  unsigned length = 0;
  const unsigned char* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), raw(message),
                                   message.size(), raw(digest), &length);
  LS_ASSERT(done && length == kDigestBytes, "HMAC-SHA256 failed");
  return digest;
}

bool same_secret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t got = ::getrandom(bytes.data() + done, count - done, 0);
    LS_ASSERT(got > 0 || errno == EINTR, "getrandom failed");
    if (got > 0) done += static_cast<size_t>(got);
  }
  return bytes;
}

std::string stretched(std::string_view passphrase) {
  start_openssl();
  std::string key(kDigestBytes, '\0');
  const int done = PKCS5_PBKDF2_HMAC(passphrase.data(), static_cast<int>(passphrase.size()),
                                     raw(kStretchSalt), static_cast<int>(kStretchSalt.size()), kStretchRounds,
                                     EVP_sha256(), kDigestBytes, raw(key));
  LS_ASSERT(done == 1, "PBKDF2 failed");
  return key;
}

}  // namespace lockstep::comm
