#include "lockstep/comm/interface.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

namespace lockstep::comm {
namespace {

std::string number_of(const sockaddr* address) {
  char text[NI_MAXHOST] = {};
  const socklen_t length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return ::getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

// A datagram socket that is connected has chosen its own address, and has sent nothing.
std::string own_address(const addrinfo& peer) {
  const int file = ::socket(peer.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (file < 0) return "";
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  auto* address = reinterpret_cast<sockaddr*>(&own);
  const bool known =
      ::connect(file, peer.ai_addr, peer.ai_addrlen) == 0 && ::getsockname(file, address, &length) == 0;
  ::close(file);
  return known ? number_of(address) : "";
}

}  // namespace

std::string address_towards(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos) return "";
  std::string host = endpoint.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), endpoint.c_str() + colon + 1, &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (const std::string address = own_address(*one); !address.empty()) return address;
  }
  return "";
}

std::string interface_name(const std::string& name_or_address) {
  if (name_or_address.empty() || ::if_nametoindex(name_or_address.c_str()) != 0) return name_or_address;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, ::freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if ((family == AF_INET || family == AF_INET6) && number_of(one->ifa_addr) == name_or_address)
      return one->ifa_name;
  }
  return "";
}

}  // namespace lockstep::comm
