#include "lockstep/comm/store/store_socket.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/store/store_server.h"

namespace lockstep::comm {
namespace {

struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};

Endpoint name_of(const Address& address) {
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "0";
  ::getnameinfo(address.get(), address.length, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  return {host, base::parse_number<int>(port).value_or(0)};
}

std::vector<Address> resolve(const std::string& host, int port, bool passive, std::string& problem) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  const int error = ::getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &list);
  if (error != 0) {
    problem = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error);
    return {};
  }
  std::vector<Address> found;
  for (const addrinfo* one = list; one; one = one->ai_next) {
    Address address;
    address.length = std::min<socklen_t>(one->ai_addrlen, sizeof address.bytes);
    std::memcpy(&address.bytes, one->ai_addr, address.length);
    found.push_back(address);
  }
  ::freeaddrinfo(list);
  return found;
}

// Addresses of the interface of that name, IPv4 first; none if there is no such interface.
std::vector<Address> addresses_of_interface(const std::string& name, int port) {
  ifaddrs* list = nullptr;
  std::vector<Address> found;
  if (::if_nametoindex(name.c_str()) == 0 || ::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    if (!one->ifa_addr || name != one->ifa_name) continue;
    Address address;
    if (one->ifa_addr->sa_family == AF_INET) {
      address.length = sizeof(sockaddr_in);
      std::memcpy(&address.bytes, one->ifa_addr, address.length);
      reinterpret_cast<sockaddr_in&>(address.bytes).sin_port = htons(static_cast<uint16_t>(port));
      found.insert(found.begin(), address);
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      address.length = sizeof(sockaddr_in6);
      std::memcpy(&address.bytes, one->ifa_addr, address.length);
      reinterpret_cast<sockaddr_in6&>(address.bytes).sin6_port = htons(static_cast<uint16_t>(port));
      found.push_back(address);
    }
  }
  ::freeifaddrs(list);
  return found;
}

void set_option(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value,
               sizeof value);  // a request: what the kernel refuses, we do without
}

// Small messages leave at once; a machine that vanished is noticed within a minute.
void prepare_stream(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 60'000);
}

bool wait_for(const Socket& socket, short events, TimePoint deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd one{socket.number(), events, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000)));
    if (ready > 0) return true;
    if (ready == 0 && left <= 0) return false;
    if (ready < 0 && errno != EINTR) return true;  // the next call will say what is wrong
  }
}

int pending_error(int socket) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

// A connection, or why there is none, as errno.
Socket connect_to(const Address& address, TimePoint deadline, int& error) {
  Socket socket(::socket(address.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  error = socket ? 0 : errno;
  if (socket && ::connect(socket.number(), address.get(), address.length) != 0) error = errno;
  if (error == EINPROGRESS)
    error = wait_writable(socket, deadline) ? pending_error(socket.number()) : ETIMEDOUT;
  if (error != 0) return {};
  // A port that nobody listens at may be the very one the kernel lends us: then we reached ourselves.
  const Endpoint here = local_end(socket), there = far_end(socket);
  if (here.host == there.host && here.port == there.port) {
    error = ECONNREFUSED;
    return {};
  }
  prepare_stream(socket.number());
  return socket;
}

}  // namespace

Endpoint parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  Endpoint endpoint{text.substr(0, colon), 0};
  if (endpoint.host.size() > 2 && endpoint.host.front() == '[' && endpoint.host.back() == ']') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  } else if (endpoint.host.find_first_of(":[]") != std::string::npos) {
    endpoint.host.clear();  // a bare IPv6 number: where its port begins cannot be told
  }
  if (colon != std::string::npos)
    endpoint.port = base::parse_number<int>(std::string_view(text).substr(colon + 1)).value_or(0);
  const bool clean = endpoint.host.find_first_of(" \t\r\n/") == std::string::npos &&
                     endpoint.host.find('\0') == std::string::npos;
  if (!clean || endpoint.host.empty() || endpoint.port < 1 || endpoint.port > 65535) {
    throw base::ConfigError(518, fmt::format("{} is not an endpoint: write host:port, such as node1:29400 or "
                                             "[fd00::1]:29400",
                                             base::quoted(text)));
  }
  return endpoint;
}

std::string to_text(const Endpoint& endpoint) {
  const bool six = endpoint.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", six ? "[" : "", endpoint.host, six ? "]" : "", endpoint.port);
}

Socket::~Socket() {
  if (number_ >= 0) ::close(number_);
}

Socket listen_at(const std::string& address, int port) {
  std::string problem = "no such address";
  const auto sentence = [&] {
    return fmt::format("the store cannot listen at {}: {}; choose another port or address",
                       to_text({address, port}), problem);
  };
  std::vector<Address> places = addresses_of_interface(address, port);
  if (places.empty() && !address.empty()) places = resolve(address, port, true, problem);
  for (const Address& place : places) {
    Socket socket(::socket(place.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (socket) set_option(socket.number(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (socket && ::bind(socket.number(), place.get(), place.length) == 0 &&
        ::listen(socket.number(), SOMAXCONN) == 0) {
      return socket;
    }
    const int error = errno;
    problem = std::strerror(error);
    // Not at another address of the same name: who looks for the store there would find the other program.
    if (error == EADDRINUSE) throw AddressInUse(513, sentence());
  }
  throw base::ConfigError(513, sentence());
}

Socket accept_from(const Socket& listener, int& error) {
  Socket socket(::accept4(listener.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  error = socket ? 0 : errno;
  if (socket) prepare_stream(socket.number());
  return socket;
}

Socket connect_once(const Endpoint& endpoint, TimePoint deadline, std::string& tried, bool* nobody) {
  // One address that swallows packets must not use up the time of the others.
  constexpr Duration kMostForOne{5000};
  tried.clear();
  std::string problem;
  const std::vector<Address> places = resolve(endpoint.host, endpoint.port, false, problem);
  if (places.empty()) tried = fmt::format("{}: {}", endpoint.host, problem);
  bool all_refused = true;
  for (const Address& place : places) {
    int error = 0;
    Socket socket =
        connect_to(place, std::min(deadline, std::chrono::steady_clock::now() + kMostForOne), error);
    if (socket) return socket;
    all_refused = all_refused && error == ECONNREFUSED;
    tried +=
        fmt::format("{}{}: {}", tried.empty() ? "" : "; ", to_text(name_of(place)), std::strerror(error));
  }
  if (nobody) *nobody = all_refused;
  return {};
}

Endpoint local_end(const Socket& socket) {
  Address address{{}, sizeof address.bytes};
  ::getsockname(socket.number(), address.get(), &address.length);
  return name_of(address);
}

Endpoint far_end(const Socket& socket) {
  Address address{{}, sizeof address.bytes};
  ::getpeername(socket.number(), address.get(), &address.length);
  return name_of(address);
}

bool wait_readable(const Socket& socket, TimePoint deadline) { return wait_for(socket, POLLIN, deadline); }
bool wait_writable(const Socket& socket, TimePoint deadline) { return wait_for(socket, POLLOUT, deadline); }

}  // namespace lockstep::comm
