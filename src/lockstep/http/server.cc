#include "lockstep/http/server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::http {

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) found = nullptr;
  return {found, ::freeaddrinfo};
}

// A listening socket; -1 and errno: it cannot be.
int listening(const addrinfo& at) {
  const int socket = ::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC, at.ai_protocol);
  if (socket < 0) return -1;
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket, at.ai_addr, at.ai_addrlen) == 0 && ::listen(socket, kMostConnections) == 0)
    return socket;
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

int open_socket(const ServerOptions& options) {
  const Addresses addresses = look_up(options.host, options.port);
  if (!addresses)
    throw base::ConfigError(764, fmt::format("--host {}: no such address; expected one of this machine, such "
                                             "as 127.0.0.1",
                                             base::quoted(options.host)));
  int socket = listening(*addresses);
  if (socket < 0 && errno == EADDRINUSE && options.or_any_port) socket = listening(*look_up(options.host, 0));
  if (socket >= 0) return socket;
  if (errno == EADDRINUSE)
    throw base::ConfigError(764, fmt::format("port {} of {} is taken by another program; --port 0 takes a "
                                             "free one",
                                             options.port, options.host));
  throw base::ConfigError(764, fmt::format("cannot listen on {} port {}: {}; choose another --host or --port",
                                           options.host, options.port, std::strerror(errno)));
}

int port_of(int socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &size) != 0) return 0;
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

bool readable(int socket, double seconds) {
  pollfd one{socket, POLLIN, 0};
  return ::poll(&one, 1, std::max(0, static_cast<int>(seconds * 1e3))) == 1;
}

bool send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

Reply plain(int status, const std::string& sentence) {
  return {.status = status, .type = "text/plain; charset=utf-8", .body = sentence + "\n"};
}

}  // namespace

struct Server::Shared {
  ServerOptions options;
  Handler handler;
  std::unique_ptr<base::Descriptor> listener;
  std::atomic<int> connections{0};
  std::atomic<bool> ends{false};

  void talk(int socket) const;
  std::optional<Reply> read_request(int socket, std::string& buffer, Request& request) const;
  std::optional<Reply> read_body(int socket, std::string& buffer, Request& request) const;
  Reply answer(const Request& request) const;
  bool send_reply(int socket, const Reply& reply, const Request& request) const;
};

// Waits for a whole head. A reply: what was wrong with it, or (status 0) nobody is there any more.
std::optional<Reply> Server::Shared::read_request(int socket, std::string& buffer, Request& request) const {
  const Reply gone{.status = 0};
  const auto began = base::monotonic_ns();
  const auto waited = [&] { return static_cast<double>(base::monotonic_ns() - began) / 1e9; };
  bool in_head = !buffer.empty();
  while (true) {
    if (const size_t end = buffer.find("\r\n\r\n"); end != std::string::npos && end + 4 <= kLongestHead) {
      auto parsed = parse_request(std::string_view(buffer).substr(0, end + 4));
      buffer.erase(0, end + 4);
      if (!parsed) return plain(400, "that is no HTTP request");
      request = std::move(*parsed);
      return std::nullopt;
    }
    if (buffer.size() >= kLongestHead) return plain(431, "the request is too long");
    const double limit = in_head ? options.head_seconds : options.idle_seconds;
    constexpr double kAtOnce = 0.25;  // the server may be asked to end
    if (waited() > limit) return in_head ? plain(408, "the request did not arrive in time") : gone;
    if (ends) return gone;
    if (!readable(socket, std::min(kAtOnce, limit))) continue;
    char piece[4096];
    const ssize_t got = ::recv(socket, piece, sizeof piece, 0);
    if (got <= 0) return gone;
    buffer.append(piece, static_cast<size_t>(got));
    in_head = true;
  }
}

// Of a stated length; behind its head in `buffer`, as far as it has come.
std::optional<Reply> Server::Shared::read_body(int socket, std::string& buffer, Request& request) const {
  if (request.header("transfer-encoding") != nullptr) return plain(411, "a body needs a Content-Length");
  const std::string* length = request.header("content-length");
  const auto bytes = length ? base::parse_number<size_t>(*length) : std::optional<size_t>(0);
  if (!bytes) return plain(400, "that is no length");
  if (*bytes > options.most_body) return plain(413, "the body is too long");
  const auto began = base::monotonic_ns();
  while (buffer.size() < *bytes) {
    const double left = options.head_seconds - static_cast<double>(base::monotonic_ns() - began) / 1e9;
    if (left <= 0) return plain(408, "the body did not arrive in time");
    constexpr double kAtOnce = 0.25;
    if (ends) return Reply{.status = 0};
    if (!readable(socket, std::min(kAtOnce, left))) continue;
    char piece[4096];
    const ssize_t got = ::recv(socket, piece, sizeof piece, 0);
    if (got <= 0) return Reply{.status = 0};
    buffer.append(piece, static_cast<size_t>(got));
  }
  request.body = buffer.substr(0, *bytes);
  buffer.erase(0, *bytes);
  return std::nullopt;
}

Reply Server::Shared::answer(const Request& request) const {
  if (options.most_body == 0 && request.method != "GET" && request.method != "HEAD") {
    Reply reply = plain(405, "this server is read-only: GET and HEAD");
    reply.headers.emplace_back("Allow", "GET, HEAD");
    return reply;
  }
  try {
    return handler(request);
  } catch (const std::exception& error) {
    return plain(500, error.what());
  }
}

bool Server::Shared::send_reply(int socket, const Reply& reply, const Request& request) const {
  const bool head_only = request.method == "HEAD";
  std::string text = head_of(reply, request.keep_alive);
  if (!reply.stream) return send_all(socket, head_only ? text : text + reply.body) && request.keep_alive;
  if (!send_all(socket, text) || head_only) return false;
  while (!ends) {
    const std::optional<std::string> piece = reply.stream();
    if (!piece || !send_all(socket, *piece)) return false;
    char byte = 0;  // a reader that has gone is seen here, also when there is nothing to send
    if (readable(socket, 0) && ::recv(socket, &byte, 1, MSG_PEEK) <= 0) return false;
  }
  return false;
}

void Server::Shared::talk(int socket) const {
  const timeval patience{.tv_sec = 10, .tv_usec = 0};  // for a reader that does not read
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  std::string buffer;
  for (bool more = true; more;) {
    Request request;
    auto refusal = read_request(socket, buffer, request);
    if (!refusal && options.most_body > 0) refusal = read_body(socket, buffer, request);
    if (refusal) {
      request.keep_alive = false;
      if (refusal->status != 0) send_reply(socket, *refusal, request);
      return;
    }
    // A body would be taken for the next request.
    if (options.most_body == 0 &&
        (request.header("content-length") != nullptr || request.header("transfer-encoding") != nullptr))
      request.keep_alive = false;
    more = send_reply(socket, answer(request), request);
  }
}

Server::Server(const ServerOptions& options) : shared_(std::make_shared<Shared>()) {
  shared_->options = options;
  shared_->listener = std::make_unique<base::Descriptor>(open_socket(options));
}

Server::~Server() = default;

int Server::port() const { return port_of(shared_->listener->number); }

void Server::serve(int stop, Handler handler) {
  shared_->handler = std::move(handler);
  while (true) {
    pollfd both[] = {{shared_->listener->number, POLLIN, 0}, {stop, POLLIN, 0}};
    if (::poll(both, 2, -1) < 0 && errno != EINTR) break;
    if (both[1].revents != 0) break;
    if ((both[0].revents & POLLIN) == 0) continue;
    const int socket = ::accept4(shared_->listener->number, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) {
      constexpr auto kPause = std::chrono::milliseconds(50);  // no descriptors left: some will be
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) std::this_thread::sleep_for(kPause);
      continue;
    }
    if (shared_->connections.fetch_add(1) >= shared_->options.most_connections) {
      send_all(socket, head_of(plain(503, ""), false));
      ::close(socket);
      shared_->connections.fetch_sub(1);
      continue;
    }
    std::thread([shared = shared_, socket] {
      shared->talk(socket);
      ::close(socket);
      shared->connections.fetch_sub(1);
    }).detach();
  }
  shared_->ends = true;
  for (int i = 0; i < 100 && shared_->connections > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

bool is_loopback(const std::string& host) {
  const Addresses addresses = look_up(host, 0);
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    if (one->ai_family == AF_INET &&
        (ntohl(reinterpret_cast<sockaddr_in*>(one->ai_addr)->sin_addr.s_addr) >> 24) != IN_LOOPBACKNET)
      return false;
    if (one->ai_family == AF_INET6 &&
        !IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<sockaddr_in6*>(one->ai_addr)->sin6_addr))
      return false;
  }
  return addresses != nullptr;
}

}  // namespace lockstep::http
