#include "lockstep/launch/rendezvous/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>

#include "lockstep/base/error.h"

namespace lockstep::launch {

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) found = nullptr;
  return Addresses(found, &::freeaddrinfo);
}

std::string to_text(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  return ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

}  // namespace

namespace {

constexpr int kFirstPort = 20000, kLastPort = 65535, kTries = 200;

// Ports that the kernel hands out by itself, first and last.
std::pair<int, int> automatic_ports() {
  std::pair<int, int> range{32768, 60999};
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> range.first >> range.second;
  return range;
}

// From the kernel's own, where others are not to be had.
int automatic_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  const bool bound = socket >= 0 && ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (socket >= 0) ::close(socket);
  if (!bound) throw base::IoError(532, fmt::format("no free TCP port: {}", std::strerror(error)));
  return ntohs(address.sin_port);
}

}  // namespace

int free_port() { return free_ports(1); }

int free_ports(int count) {
  const auto [first, last] = automatic_ports();
  const auto usable = [&](int port) {
    return (port < first || port > last) && port <= kLastPort && port_is_free(port);
  };
  std::random_device random;
  for (int k = 0; k < kTries; ++k) {
    const int port = kFirstPort + static_cast<int>(random() % (kLastPort - kFirstPort + 1));
    int good = 0;
    while (good < count && usable(port + good)) ++good;
    if (good == count) return port;
  }
  if (count == 1) return automatic_port();
  throw base::IoError(532, fmt::format("no {} consecutive free TCP ports", count));
}

bool port_is_free(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int reuse = 1;  // connections of an earlier run that linger do not matter
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_port = htons(static_cast<uint16_t>(port));
  const bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  const bool free = bound || errno != EADDRINUSE;
  ::close(socket);
  return free;
}

bool name_resolves(const std::string& host) { return resolve(host) != nullptr; }

// Connecting a datagram socket sends nothing: the kernel only looks up the route.
std::string address_towards(const std::string& host) {
  const Addresses addresses = resolve(host);
  for (const addrinfo* one = addresses.get(); one; one = one->ai_next) {
    const int socket = ::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    std::string text;
    if (::connect(socket, one->ai_addr, one->ai_addrlen) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0) {
      text = to_text(reinterpret_cast<sockaddr*>(&own), size);
    }
    ::close(socket);
    if (!text.empty()) return text;
  }
  return "127.0.0.1";
}

namespace {

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool is_number(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, host.c_str(), bytes) == 1 || ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

std::string reachable(const std::string& host) {
  if (host.empty() || host == "localhost" || is_number(host)) return host;
  const Addresses addresses = resolve(host);
  if (!addresses) return host;
  for (const addrinfo* one = addresses.get(); one; one = one->ai_next) {
    if (!is_loopback(one->ai_addr)) return host;
  }
  constexpr const char* kOutside =
      "192.0.2.1";  // an address for documentation: only the route to it is looked up
  const std::string own = address_towards(kOutside);
  const Addresses found = resolve(own);
  return !found || is_loopback(found->ai_addr) ? host : own;
}

// An address is ours when a socket can be bound to it.
bool is_this_machine(const std::string& host) {
  const Addresses addresses = resolve(host);
  for (const addrinfo* one = addresses.get(); one; one = one->ai_next) {
    const int socket = ::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    sockaddr_storage address{};
    std::memcpy(&address, one->ai_addr, one->ai_addrlen);
    if (one->ai_family == AF_INET) reinterpret_cast<sockaddr_in&>(address).sin_port = 0;
    if (one->ai_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(address).sin6_port = 0;
    const bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), one->ai_addrlen) == 0;
    ::close(socket);
    if (bound) return true;
  }
  return false;
}

}  // namespace lockstep::launch
