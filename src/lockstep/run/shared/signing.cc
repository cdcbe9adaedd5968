#include "lockstep/run/shared/signing.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::run {

namespace {

constexpr size_t kShortestSecret = 16;
constexpr int64_t kLongestKey = 64 << 10;

void start_openssl() {
  LS_ASSERT(OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr) == 1);
}

const unsigned char* raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string from_hex(std::string_view text) {  // empty: it is none
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) return "";
    bytes += static_cast<char>(16 * high + low);
  }
  return text.size() % 2 == 0 ? bytes : "";
}

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Pkey = std::unique_ptr<EVP_PKEY, FreeKey>;
using Bio = std::unique_ptr<BIO, FreeBio>;

Bio bio_of(std::string_view text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// No passphrase is asked for at a terminal: a run has none.
int no_passphrase(char*, int, int, void*) { return -1; }

std::string written(const Pkey& key, bool secret) {
  const Bio bio(BIO_new(BIO_s_mem()));
  const int done = secret
                       ? PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr)
                       : PEM_write_bio_PUBKEY(bio.get(), key.get());
  LS_ASSERT(done == 1, "a key cannot be written as PEM");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(size)};
}

// Who else can read a secret could sign in its owner's name.
void refuse_shared(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || (status.st_mode & 077) == 0) return;
  throw base::ConfigError(337, fmt::format("others can read the key {} (mode {:o}): chmod 600 {}", path,
                                           status.st_mode & 0777, path));
}

void write_key(const std::string& path, const std::string& text, mode_t mode) {
  const base::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (file.number < 0 && errno == EEXIST)
    throw base::ConfigError(110, fmt::format("{} already exists; choose another name for the new key", path));
  if (file.number < 0 || ::write(file.number, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw base::IoError(802, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

}  // namespace

std::string sha256_hex(std::string_view text) {
  start_openssl();
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  LS_ASSERT(EVP_Digest(text.data(), text.size(), digest, &length, EVP_sha256(), nullptr) == 1);
  return hex({reinterpret_cast<const char*>(digest), length});
}

struct SigningKey::Key {
  std::string secret;  // of HMAC; empty: Ed25519
  Pkey pair;
  bool is_private = false;
};

SigningKey::SigningKey(std::unique_ptr<Key> key) : key_(std::move(key)) {}
SigningKey::~SigningKey() {
  if (key_) OPENSSL_cleanse(key_->secret.data(), key_->secret.size());
}
SigningKey::SigningKey(SigningKey&&) noexcept = default;
SigningKey& SigningKey::operator=(SigningKey&&) noexcept = default;

SigningKey SigningKey::from_public_pem(const std::string& pem) {
  start_openssl();
  auto key = std::make_unique<Key>();
  key->pair.reset(PEM_read_bio_PUBKEY(bio_of(pem).get(), nullptr, no_passphrase, nullptr));
  if (!key->pair || EVP_PKEY_get_id(key->pair.get()) != EVP_PKEY_ED25519)
    throw base::ConfigError(337, "that is no Ed25519 public key in PEM");
  return SigningKey(std::move(key));
}

SigningKey::SigningKey(const std::string& path) : key_(std::make_unique<Key>()) {
  start_openssl();
  const base::ReadResult file = base::try_read_file(path, kLongestKey);
  if (!file.problem.empty())
    throw base::ConfigError(
        337, fmt::format("the key {} cannot be read: {}; make one with `lockstep audit --make-key FILE`",
                         path, file.problem));
  const std::string& text = file.text;
  if (text.find("-----BEGIN PUBLIC KEY-----") != std::string::npos) {
    *this = from_public_pem(text);
    return;
  }
  refuse_shared(path);
  if (text.starts_with("-----BEGIN")) {
    key_->pair.reset(PEM_read_bio_PrivateKey(bio_of(text).get(), nullptr, no_passphrase, nullptr));
    key_->is_private = true;
    if (!key_->pair || EVP_PKEY_get_id(key_->pair.get()) != EVP_PKEY_ED25519)
      throw base::ConfigError(337,
                              fmt::format("{} is no Ed25519 private key without a passphrase; make one with "
                                          "`lockstep audit --make-key FILE`",
                                          path));
    return;
  }
  key_->secret = text;
  while (!key_->secret.empty() && key_->secret.back() == '\n') key_->secret.pop_back();
  if (key_->secret.size() < kShortestSecret)
    throw base::ConfigError(337,
                            fmt::format("the secret in {} has {} bytes, at least {} are needed; make one "
                                        "with `openssl rand -hex 32`",
                                        path, key_->secret.size(), kShortestSecret));
}

bool SigningKey::can_sign() const { return !key_->secret.empty() || key_->is_private; }
std::string SigningKey::kind() const { return key_->pair ? "ed25519" : "hmac-sha256"; }
std::string SigningKey::public_pem() const { return key_->pair ? written(key_->pair, false) : ""; }

std::string SigningKey::fingerprint() const {
  const std::string shown = key_->pair ? public_pem() : sign("lockstep chain fingerprint");
  return sha256_hex(shown).substr(0, 16);
}

std::string SigningKey::sign(std::string_view text) const {
  LS_ASSERT(can_sign(), "a public key signs nothing");
  unsigned char bytes[EVP_MAX_MD_SIZE];
  if (!key_->pair) {
    unsigned length = 0;
    LS_ASSERT(HMAC(EVP_sha256(), key_->secret.data(), static_cast<int>(key_->secret.size()), raw(text),
                   text.size(), bytes, &length) != nullptr);
    return hex({reinterpret_cast<const char*>(bytes), length});
  }
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  size_t length = sizeof(bytes);
  LS_ASSERT(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_->pair.get()) == 1);
  LS_ASSERT(EVP_DigestSign(context.get(), bytes, &length, raw(text), text.size()) == 1, "signing failed");
  return hex({reinterpret_cast<const char*>(bytes), length});
}

bool SigningKey::has_signed(std::string_view text, std::string_view signature) const {
  if (!key_->pair) {
    const std::string own = sign(text);
    return own.size() == signature.size() && CRYPTO_memcmp(own.data(), signature.data(), own.size()) == 0;
  }
  const std::string bytes = from_hex(signature);
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  LS_ASSERT(EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key_->pair.get()) == 1);
  return EVP_DigestVerify(context.get(), raw(bytes), bytes.size(), raw(text), text.size()) == 1;
}

void make_signing_key(const std::string& path) {
  start_openssl();
  const Pkey pair(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  LS_ASSERT(pair != nullptr, "OpenSSL makes no Ed25519 key");
  write_key(path, written(pair, true), 0600);
  write_key(path + ".pub", written(pair, false), 0644);
}

}  // namespace lockstep::run
