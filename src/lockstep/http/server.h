// A small HTTP server for people and scripts that look at a run: it answers GET and HEAD, and nothing else
// unless `most_body` says so.
//
//     Server server({.port = 8420});
//     server.serve(stop, [](const Request& request) { return Reply{.body = "{}"}; });  // until `stop` is
//     readable
//
// A thread per connection, at most kMostConnections of them. Whatever comes in is bounded in size and in
// time, so a client that sends nothing, or slowly, or too much, costs one thread for some seconds. There is
// no TLS: by default only this machine can connect.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/http/request.h"

namespace lockstep::http {

constexpr int kMostConnections = 64;

struct ServerOptions {
  std::string host = "127.0.0.1";  // a name or an address of this machine
  int port = 0;                    // 0: any free one
  bool or_any_port = false;        // where `port` is taken: any free one
  double head_seconds = 10;        // for a request to arrive
  double idle_seconds = 60;        // between two requests of a connection
  int most_connections = kMostConnections;
  size_t most_body = 0;  // bytes; more than 0: any method reaches the handler, with its body
};

// Called from several threads at once. What it throws becomes a reply with status 500 and the sentence.
using Handler = std::function<Reply(const Request&)>;

class Server {
 public:
  // Listens when it returns. ConfigError 764: the port is taken, or the address is not this machine's.
  explicit Server(const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  // Once. Returns soon after `stop` (a pipe, a signalfd) is readable, also where a handler still waits for a
  // disk: its thread keeps the handler, which should own what it uses.
  void serve(int stop, Handler handler);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

bool is_loopback(const std::string& host);  // only this machine can connect to it

}  // namespace lockstep::http
