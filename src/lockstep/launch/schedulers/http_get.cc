#include "lockstep/launch/schedulers/http_get.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "lockstep/base/descriptor.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMostReply = 64 << 10;

bool wait_for(int socket, short what, Duration patience) {
  pollfd one{socket, what, 0};
  return ::poll(&one, 1, static_cast<int>(patience.count())) == 1 && (one.revents & what) != 0;
}
using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& server) {
  const size_t colon = server.rfind(':');
  const std::string host = server.substr(0, colon);
  const std::string port = colon == std::string::npos ? "80" : server.substr(colon + 1);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) found = nullptr;
  return {found, ::freeaddrinfo};
}

bool connects(int socket, const addrinfo& to, Duration patience) {
  if (::connect(socket, to.ai_addr, to.ai_addrlen) == 0) return true;
  int error = 0;
  socklen_t size = sizeof error;
  return errno == EINPROGRESS && wait_for(socket, POLLOUT, patience) &&
         ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

bool sends(int socket, const std::string& text) {
  return ::send(socket, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

std::string receive(int socket, Duration patience) {
  std::string reply;
  char piece[4096];
  while (reply.size() < kMostReply && wait_for(socket, POLLIN, patience)) {
    const ssize_t got = ::recv(socket, piece, sizeof piece, 0);
    if (got <= 0) break;
    reply.append(piece, static_cast<size_t>(got));
  }
  return reply;
}

std::string body_of(const std::string& reply) {
  const size_t body = reply.find("\r\n\r\n");
  const bool good = reply.starts_with("HTTP/1.") && reply.substr(8, 5) == " 200 ";
  return good && body != std::string::npos ? reply.substr(body + 4) : "";
}

}  // namespace

std::string http_get(const HttpRequest& request) {
  const Addresses addresses = look_up(request.server);
  if (!addresses) return "";
  const base::Descriptor socket(::socket(
      addresses->ai_family, addresses->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, addresses->ai_protocol));
  if (socket.number < 0 || !connects(socket.number, *addresses, request.patience)) return "";
  std::string text = fmt::format("GET {} HTTP/1.0\r\nHost: {}\r\n", request.path, request.server);
  for (const std::string& header : request.headers) text += header + "\r\n";
  text += "Connection: close\r\n\r\n";
  return sends(socket.number, text) ? body_of(receive(socket.number, request.patience)) : "";
}

}  // namespace lockstep::launch
