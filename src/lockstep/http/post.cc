#include "lockstep/http/post.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/number.h"

namespace lockstep::http {

namespace {

using Clock = std::chrono::steady_clock;

// Everything is done before `until`: a server that does not answer holds up nobody.
struct Deadline {
  Clock::time_point until;
  int left_ms() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    return static_cast<int>(left > 0 ? left : 0);
  }
  bool wait(int socket, short events) const {
    pollfd one{socket, events, 0};
    return ::poll(&one, 1, left_ms()) == 1;
  }
};

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

// A connected socket that does not block; -1 with the reason.
int connect_to(const Url& url, const Deadline& deadline, std::string& problem) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC, hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found)) {
    problem = fmt::format("its host has no address: {}", ::gai_strerror(error));
    return -1;
  }
  const std::unique_ptr<addrinfo, FreeAddresses> list(found);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int socket =
        ::socket(one->ai_family, one->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, one->ai_protocol);
    if (socket < 0) continue;
    int error = ::connect(socket, one->ai_addr, one->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof(error);
      error = ETIMEDOUT;
      if (deadline.wait(socket, POLLOUT)) ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return socket;
    problem = fmt::format("no connection: {}", std::strerror(error));
    ::close(socket);
  }
  return -1;
}

class Wire {
 public:
  Wire(int socket, const Deadline& deadline) : socket_(socket), deadline_(deadline) {}
  ~Wire() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // Empty: it is encrypted and the server is who it should be.
  std::string start_tls(const std::string& host, const std::string& ca_file) {
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr);
    context_ = SSL_CTX_new(TLS_client_method());
    if (context_ == nullptr) return "TLS cannot be started";
    if (ca_file.empty() ? SSL_CTX_set_default_verify_paths(context_) != 1
                        : SSL_CTX_load_verify_locations(context_, ca_file.c_str(), nullptr) != 1)
      return ca_file.empty() ? "TLS cannot be started" : fmt::format("{} has no certificates", ca_file);
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    ssl_ = SSL_new(context_);
    SSL_set_tlsext_host_name(ssl_, host.c_str());
    SSL_set1_host(ssl_, host.c_str());
    SSL_set_fd(ssl_, socket_);
    while (true) {
      const int done = SSL_connect(ssl_);
      if (done == 1) return "";
      if (!wait_for(SSL_get_error(ssl_, done))) break;
    }
    const long verdict = SSL_get_verify_result(ssl_);
    return verdict == X509_V_OK
               ? "TLS could not be agreed on"
               : fmt::format("its certificate is not accepted: {}", X509_verify_cert_error_string(verdict));
  }
  bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ssl_ != nullptr ? SSL_write(ssl_, text.data(), static_cast<int>(text.size()))
                                           : ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        text.remove_prefix(static_cast<size_t>(sent));
      } else if (!again(sent, POLLOUT)) {
        return false;
      }
    }
    return true;
  }
  std::string read_line() {  // as much of the answer as its first line needs
    std::string text;
    char buffer[512];
    while (text.find('\n') == std::string::npos && text.size() < 4096) {
      const ssize_t got = ssl_ != nullptr ? SSL_read(ssl_, buffer, sizeof(buffer))
                                          : ::recv(socket_, buffer, sizeof(buffer), 0);
      if (got > 0) {
        text.append(buffer, static_cast<size_t>(got));
      } else if (!again(got, POLLIN)) {
        break;
      }
    }
    return text.substr(0, text.find('\n'));
  }

 private:
  bool again(ssize_t result, short events) const {
    if (ssl_ != nullptr) return wait_for(SSL_get_error(ssl_, static_cast<int>(result)));
    return result < 0 && (errno == EAGAIN || errno == EINTR) && deadline_.wait(socket_, events);
  }
  bool wait_for(int error) const {
    if (error == SSL_ERROR_WANT_READ) return deadline_.wait(socket_, POLLIN);
    return error == SSL_ERROR_WANT_WRITE && deadline_.wait(socket_, POLLOUT);
  }
  int socket_;
  const Deadline& deadline_;
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
};

// With brackets around an IPv6 address, and a port that is not the usual one.
std::string host_words(const Url& url) {
  const std::string host = url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
  return url.port == (url.tls ? "443" : "80") ? host : host + ":" + url.port;
}

}  // namespace

std::optional<Url> parse_url(std::string_view text) {
  Url url;
  if (text.starts_with("https://")) {
    text.remove_prefix(8);
  } else if (text.starts_with("http://")) {
    url.tls = false, text.remove_prefix(7);
  } else {
    return std::nullopt;
  }
  const size_t path = text.find_first_of("/?#");
  std::string_view authority = text.substr(0, path);
  url.path = path == std::string_view::npos ? "/" : std::string(text.substr(path));
  if (!url.path.starts_with('/')) url.path = "/" + url.path;
  url.path.resize(std::min(url.path.find('#'), url.path.size()));  // for browsers only
  url.port = url.tls ? "443" : "80";
  const size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && authority.back() != ']') {
    if (!base::parse_number<uint16_t>(authority.substr(colon + 1))) return std::nullopt;
    url.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']'))
    authority = authority.substr(1, authority.size() - 2);
  url.host = authority;
  for (const char c : url.host + url.path) {
    if (c <= ' ' || c == '\x7f' || c == '@') return std::nullopt;  // no second header, no name and password
  }
  if (url.host.empty()) return std::nullopt;
  return url;
}

PostResult post_json(const Url& url, const std::string& body, std::chrono::milliseconds timeout,
                     const PostAs& as) {
  const Deadline deadline{Clock::now() + timeout};
  PostResult result;
  const base::Descriptor socket(connect_to(url, deadline, result.problem));
  if (socket.number < 0) return result;
  Wire wire(socket.number, deadline);
  if (url.tls) result.problem = wire.start_tls(url.host, as.ca_file);
  if (!result.problem.empty()) return result;
  const bool says_who = url.tls && !as.bearer.empty();
  const std::string head = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nUser-Agent: "
      "lockstep\r\n{}"
      "Connection: close\r\n\r\n",
      url.path, host_words(url), body.size(), says_who ? "Authorization: Bearer " + as.bearer + "\r\n" : "");
  if (!wire.write(head + body)) {
    result.problem = deadline.left_ms() == 0 ? "it did not take the message in time" : "the connection broke";
    return result;
  }
  const std::string line = wire.read_line();
  if (line.starts_with("HTTP/1.") && line.size() >= 12)
    result.status = base::parse_number<int>(std::string_view(line).substr(9, 3)).value_or(0);
  if (result.status >= 200 && result.status < 300) return result;
  result.problem =
      result.status > 0 ? fmt::format("it answered {}", result.status) : "it did not answer in time";
  return result;
}

}  // namespace lockstep::http
