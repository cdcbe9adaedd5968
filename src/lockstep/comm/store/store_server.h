// The server of a run's store. It sits in the launcher, in one thread of its own.
//
// A client proves that it knows the secret by an HMAC-SHA256 over both sides' fresh challenges before
// anything else is read from it; so does the server to the client. Bound to the one given address, never to
// all interfaces. Messages, keys, values and connections are limited. A scan, garbage, a wrong secret or a
// half-open connection is reported through `log` with the peer's address, dropped, and disturbs nobody.
//
// Without `tls` what follows the handshake is neither encrypted nor sealed: who can change packets between
// two nodes can change messages.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/comm/store/secret.h"
#include "lockstep/comm/store/store.h"

namespace lockstep::comm {

struct StoreServerOptions {
  // To bind: a host's name or number, or an interface's name. All of them only if that is what it says
  // ("0.0.0.0").
  std::string address = "127.0.0.1";
  int port = 0;  // 0: a free one
  Secret secret;
  std::string run = {};  // whose store this is: clients that name another run are sent on; not a secret
  int64_t most_message_bytes = 16 << 20;
  int64_t most_bytes = 1 << 30;  // of all values together
  int most_connections = 65536;
  Duration handshake_timeout{5000};
  bool tls = false;  // wrap connections in TLS 1.3, keyed by the secret (no certificates)
  // Refused peers, one sentence each, at most a hundred a minute; called from its thread.
  std::function<void(const std::string& sentence)> log;
};

// ConfigError 513 where another socket has the port: another port is the remedy.
struct AddressInUse : base::ConfigError {
  using ConfigError::ConfigError;
};

class StoreServer {
 public:
  // ConfigError 513 names the address and port when it cannot bind; AddressInUse, if that is why. Raises this
  // process's limit of open files towards `most_connections`, as far as it may.
  explicit StoreServer(StoreServerOptions options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  int port() const;
  std::string endpoint() const;  // "10.0.0.1:29400"
  int connections() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct StoreClientOptions {
  std::string endpoint;  // "host:port"
  Secret secret;
  // Whose store is looked for. That of another run, or a program that is no store, then counts as nobody: the
  // port may have been taken before ours could have it. Empty: whoever knows the secret is the right one.
  std::string run = {};
  bool tls = false;
  Duration connect_timeout{60000};  // retried until then, with growing pauses
  Duration patience{30000};  // for a reply, beyond what the request itself waits; then the store is gone
  std::string who;           // "rank 3 on host b": the server names a peer by it
};

// A connection. CommError 514: nobody answered within the timeout, and who was tried; ConfigError 515: the
// server refused us, or could not prove itself.
std::unique_ptr<Store> connect_store(const StoreClientOptions& options);
// Tries for so long only; null instead of CommError 514, with what was wrong: "node0: Name or service not
// known". Clones of the store take options.connect_timeout.
std::unique_ptr<Store> try_connect_store(const StoreClientOptions& options, Duration within,
                                         std::string& problem);
// Who is at an endpoint, as far as one knock tells. foreign: somebody has said that it is not the store of
// options.run. silent: nothing was said (yet), which a store that is busy or just begins may do, too.
enum class Door { ours, nobody, foreign, silent };
// The same, knocking once.
std::unique_ptr<Store> try_connect_store_once(const StoreClientOptions& options, Duration within,
                                              std::string& problem);
std::unique_ptr<Store> try_connect_store_once(const StoreClientOptions& options, Duration within,
                                              std::string& problem, Door& door);

}  // namespace lockstep::comm
