#include "lockstep/comm/store/store_channel.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/text.h"

namespace lockstep::comm {
namespace {

constexpr size_t kPiece = 1 << 16;

constexpr char kTlsAlert = 0x15, kTlsHandshake = 0x16;  // how a first record begins

bool looks_like_tls(std::string_view bytes) {
  return bytes.size() >= 2 && (bytes[0] == kTlsAlert || bytes[0] == kTlsHandshake) && bytes[1] == 0x03;
}

}  // namespace

bool Channel::broken(const std::string& why) {
  if (problem_.empty()) problem_ = why;
  return false;
}

bool Channel::tls_broken() {
  misunderstood_ = true;
  return broken("TLS failed (different secret, or no TLS on the other side): " + tls_->problem());
}

bool Channel::begin() { return !tls_ || tls_->begin(out_) || tls_broken(); }

bool Channel::receive() {
  std::array<char, kPiece> piece;
  const ssize_t got = ::recv(socket_.number(), piece.data(), piece.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (got < 0) return broken(std::strerror(errno));
  if (got == 0) return broken("the other side closed the connection");
  const std::string_view bytes(piece.data(), static_cast<size_t>(got));
  const bool first = !std::exchange(heard_, true);
  if (tls_ && first && bytes[0] != kTlsAlert && bytes[0] != kTlsHandshake) {
    tls_.reset();  // what we answer, it shall understand
    misunderstood_ = true;
    return broken("the other side does not use TLS, but this side does");
  }
  if (!tls_) {
    in_.add(bytes);
    return true;
  }
  std::string plain;
  const bool whole = tls_->receive(bytes, plain, out_);
  in_.add(plain);
  return whole || tls_broken();
}

bool Channel::flush() {
  while (sending()) {
    const ssize_t sent = ::send(socket_.number(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (sent < 0) return broken(std::strerror(errno));
    sent_ += static_cast<size_t>(sent);
  }
  out_ = std::string();
  sent_ = 0;
  return true;
}

bool Channel::send(const Message& message) {
  std::string frame = encode(message);
  if (tls_) return tls_->send(frame, out_) || tls_broken();
  out_ = out_.empty() ? std::move(frame) : out_ + frame;
  return true;
}

std::optional<Message> Channel::next(int64_t most_bytes) {
  if (!problem_.empty()) return std::nullopt;
  const std::optional<uint32_t> length = in_.announced();
  if (length && *length > most_bytes) {
    misunderstood_ = true;
    broken(looks_like_tls(in_.view())
               ? "the other side uses TLS, but this side does not"
               : fmt::format("a message of {} bytes exceeds the limit of {}; it starts with {}", *length,
                             most_bytes, base::quoted(in_.view().substr(0, 16))));
    return std::nullopt;
  }
  const std::optional<std::string> body = in_.take();
  if (!body) return std::nullopt;
  std::optional<Message> message = decode(*body);
  misunderstood_ = !message;
  if (!message) broken("a malformed message");
  return message;
}

}  // namespace lockstep::comm
