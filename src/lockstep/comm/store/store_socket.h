// Sockets as the store needs them: non-blocking, closed on exec, with errors that name the address.
//
//     parse_endpoint("[fd00::1]:29400")     // {"fd00::1", 29400}
//     Socket listener = listen_at("eth0", 0);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/comm/store/store.h"

namespace lockstep::comm {

struct Endpoint {
  std::string host;
  int port = 0;
};
Endpoint parse_endpoint(const std::string& text);  // ConfigError 518
std::string to_text(const Endpoint& endpoint);     // IPv6 numbers in brackets

class Socket {
 public:
  Socket() = default;
  explicit Socket(int number) : number_(number) {}
  ~Socket();
  Socket(Socket&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

// `address`: a host's name or number, or the name of an interface of this machine. ConfigError 513,
// AddressInUse (store_server.h).
Socket listen_at(const std::string& address, int port);

// An accepted connection; empty with `error` set to errno when there is none.
Socket accept_from(const Socket& listener, int& error);

// Tries each address of the endpoint once. Empty: nobody answered before the deadline, and `tried` says who
// did not, and why. `nobody`: each address refused, so no program listens there now; or there is none.
using TimePoint = std::chrono::steady_clock::time_point;
Socket connect_once(const Endpoint& endpoint, TimePoint deadline, std::string& tried, bool* nobody = nullptr);

Endpoint local_end(const Socket& socket);
Endpoint far_end(const Socket& socket);

// Waits until the socket can be read (or written). False: the deadline passed first.
bool wait_readable(const Socket& socket, TimePoint deadline);
bool wait_writable(const Socket& socket, TimePoint deadline);

}  // namespace lockstep::comm
