// TLS 1.3 for the store, keyed by the run's secret instead of certificates (an external pre-shared key).
//
// A session turns bytes into bytes and owns no socket: what came from the network goes in, what goes to the
// network comes out. The client's name travels as the key's identity, so that the server can name whom it
// refuses.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lockstep/comm/store/secret.h"

struct ssl_ctx_st;
struct ssl_st;

namespace lockstep::comm {

enum class TlsSide { client, server };

class TlsSession {
 public:
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Each appends what must be sent to `network`. False: the session is broken and problem() says why; what
  // stands in `network` (an alert) may still be sent.
  bool begin(std::string& network);  // the client speaks first
  bool receive(std::string_view bytes, std::string& plain, std::string& network);
  bool send(std::string_view plain, std::string& network);  // waits inside until ready()

  bool ready() const { return ready_; }
  const std::string& problem() const { return problem_; }
  const std::string& who() const { return who_; }  // the client's name; not to be trusted before ready()

 private:
  friend class TlsContext;
  friend struct TlsCallbacks;
  TlsSession(ssl_ctx_st* context, TlsSide side, const std::string& key, std::string who);
  bool advance(std::string& network);
  bool fail();
  void drain(std::string& network);

  ssl_st* ssl_ = nullptr;
  const std::string& key_;
  std::string who_, problem_, waiting_;
  bool ready_ = false;
};

class TlsContext {
 public:
  TlsContext(TlsSide side, const Secret& secret);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  std::unique_ptr<TlsSession> open(const std::string& who = "");  // lives no longer than its context

 private:
  TlsSide side_;
  std::string key_;
  ssl_ctx_st* context_ = nullptr;
};

}  // namespace lockstep::comm
