#include "lockstep/comm/store/store_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/store/store_crypto.h"
#include "lockstep/comm/store/store_handshake.h"

namespace lockstep::comm {

namespace {
constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256
constexpr size_t kRecordBytes = 16384;
}  // namespace

struct TlsCallbacks {
  // A made-up session that carries the key: how OpenSSL takes external keys in TLS 1.3.
  static SSL_SESSION* session_for(SSL* ssl) {
    const std::string& key = of(ssl)->key_;
    SSL_SESSION* session = SSL_SESSION_new();
    const bool made = session &&
                      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                                  key.size()) == 1 &&
                      SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kCipher)) == 1 &&
                      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
    if (made) return session;
    SSL_SESSION_free(session);
    return nullptr;
  }

  static TlsSession* of(SSL* ssl) { return static_cast<TlsSession*>(SSL_get_app_data(ssl)); }

  static int use(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, size_t* length,
                 SSL_SESSION** session) {
    *session = nullptr;
    if (digest && EVP_MD_get_type(digest) != NID_sha256) return 1;  // no key for that digest
    *session = session_for(ssl);
    *identity = reinterpret_cast<const unsigned char*>(of(ssl)->who_.data());
    *length = of(ssl)->who_.size();
    return *session ? 1 : 0;
  }

  static int find(SSL* ssl, const unsigned char* identity, size_t length, SSL_SESSION** session) {
    if (length <= kMostWhoBytes) of(ssl)->who_.assign(reinterpret_cast<const char*>(identity), length);
    *session = session_for(ssl);
    return *session ? 1 : 0;
  }
};

TlsContext::TlsContext(TlsSide side, const Secret& secret)
    : side_(side), key_(hmac_sha256(secret.bytes(), "lockstep store tls 1")) {
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr);
  context_ = SSL_CTX_new(side == TlsSide::client ? TLS_client_method() : TLS_server_method());
  LS_ASSERT(context_ && SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION) == 1 &&
                SSL_CTX_set_ciphersuites(context_, "TLS_AES_128_GCM_SHA256") == 1,
            "OpenSSL does not support TLS 1.3");
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context_, 0);
  if (side == TlsSide::client) {
    SSL_CTX_set_psk_use_session_callback(context_, TlsCallbacks::use);
    // There are no certificates: a server that has not the key cannot finish the handshake.
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
  } else {
    SSL_CTX_set_psk_find_session_callback(context_, TlsCallbacks::find);
  }
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

std::unique_ptr<TlsSession> TlsContext::open(const std::string& who) {
  // An identity may not be empty.
  std::string name = who.empty() ? "unnamed" : who.substr(0, kMostWhoBytes);
  return std::unique_ptr<TlsSession>(new TlsSession(context_, side_, key_, std::move(name)));
}

TlsSession::TlsSession(SSL_CTX* context, TlsSide side, const std::string& key, std::string who)
    : ssl_(SSL_new(context)), key_(key), who_(side == TlsSide::client ? std::move(who) : "") {
  LS_ASSERT(ssl_, "no memory for a TLS session");
  SSL_set_app_data(ssl_, this);
  SSL_set_bio(ssl_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));  // owned by ssl_
  if (side == TlsSide::client) {
    SSL_set_connect_state(ssl_);
  } else {
    SSL_set_accept_state(ssl_);
  }
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

bool TlsSession::fail() {
  const unsigned long error = ERR_peek_error();
  const char* reason = ERR_reason_error_string(error);
  problem_ = reason ? reason : "the session was interrupted";
  ERR_clear_error();
  return false;
}

void TlsSession::drain(std::string& network) {
  char* bytes = nullptr;
  BIO* out = SSL_get_wbio(ssl_);
  const long count = BIO_get_mem_data(out, &bytes);
  if (count > 0) network.append(bytes, static_cast<size_t>(count));
  BIO_reset(out);
}

// As far through the handshake as what has come allows.
bool TlsSession::advance(std::string& network) {
  if (!problem_.empty()) return false;
  if (ready_) return true;
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_);
  const int why = done == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_, done);
  drain(network);
  if (why == SSL_ERROR_WANT_READ) return true;
  if (why != SSL_ERROR_NONE) return fail();
  ready_ = true;
  return waiting_.empty() || send(std::exchange(waiting_, {}), network);
}

bool TlsSession::begin(std::string& network) { return advance(network); }

bool TlsSession::receive(std::string_view bytes, std::string& plain, std::string& network) {
  if (!problem_.empty()) return false;
  while (!bytes.empty()) {
    const int taken =
        BIO_write(SSL_get_rbio(ssl_), bytes.data(), static_cast<int>(std::min(bytes.size(), kRecordBytes)));
    LS_ASSERT(taken > 0, "no memory for TLS");
    bytes.remove_prefix(static_cast<size_t>(taken));
  }
  if (!advance(network)) return false;
  std::array<char, kRecordBytes> piece;
  while (ready_) {
    ERR_clear_error();
    const int got = SSL_read(ssl_, piece.data(), static_cast<int>(piece.size()));
    if (got > 0) {
      plain.append(piece.data(), static_cast<size_t>(got));
      continue;
    }
    const int why = SSL_get_error(ssl_, got);
    drain(network);
    if (why != SSL_ERROR_WANT_READ) return fail();
    break;
  }
  return true;
}

bool TlsSession::send(std::string_view plain, std::string& network) {
  if (!problem_.empty()) return false;
  if (!ready_) {
    waiting_.append(plain);
    return true;
  }
  while (!plain.empty()) {
    ERR_clear_error();
    const int sent = SSL_write(ssl_, plain.data(), static_cast<int>(std::min(plain.size(), kRecordBytes)));
    if (sent <= 0) return fail();
    plain.remove_prefix(static_cast<size_t>(sent));
    drain(network);
  }
  return true;
}

}  // namespace lockstep::comm
