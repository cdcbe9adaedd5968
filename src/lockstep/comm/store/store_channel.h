// One connection of a store, either side: messages over a socket, in TLS if requested. Never blocks.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/store/store_socket.h"
#include "lockstep/comm/store/store_tls.h"
#include "lockstep/comm/store/store_wire.h"

namespace lockstep::comm {

class Channel {
 public:
  Channel(Socket socket, std::unique_ptr<TlsSession> tls)
      : socket_(std::move(socket)), tls_(std::move(tls)) {}

  // Each is false when the connection is over; problem() then says why.
  bool begin();    // a TLS client speaks first
  bool receive();  // what is there now, up to a piece
  bool flush();    // what the socket takes now
  bool send(const Message& message);

  // The next whole message. Sets problem() for one that is malformed or longer than `most_bytes`.
  std::optional<Message> next(int64_t most_bytes);

  bool sending() const { return sent_ < out_.size(); }  // flush() has more to do
  bool holds_input() const { return in_.size() > 0; }   // bytes beyond the messages taken
  bool heard_anything() const { return heard_; }
  bool misunderstood() const { return misunderstood_; }  // what came was no message, or TLS failed
  const Socket& socket() const { return socket_; }
  const TlsSession* tls() const { return tls_.get(); }
  const std::string& problem() const { return problem_; }

 private:
  bool broken(const std::string& why);
  bool tls_broken();

  Socket socket_;
  std::unique_ptr<TlsSession> tls_;
  FrameBuffer in_;
  std::string out_;  // as it goes to the network
  size_t sent_ = 0;
  bool heard_ = false, misunderstood_ = false;
  std::string problem_;
};

}  // namespace lockstep::comm
