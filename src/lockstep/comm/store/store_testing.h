// What tests of the store share: a server that remembers what it reported, and a raw socket that may
// misbehave.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/store/store_handshake.h"
#include "lockstep/comm/store/store_server.h"
#include "lockstep/comm/store/store_socket.h"

namespace lockstep::comm {

using namespace std::chrono_literals;

// Looks until `holds` or ten seconds are over.
template <class Condition>
bool soon(Condition holds) {
  for (const auto end = std::chrono::steady_clock::now() + 10s; std::chrono::steady_clock::now() < end;) {
    if (holds()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return holds();
}

class TestServer {
 public:
  explicit TestServer(StoreServerOptions options = {}) : secret_(Secret::random()), tls_(options.tls) {
    options.secret = secret_;
    options.log = [this](const std::string& sentence) {
      const std::lock_guard lock(mutex_);
      reports_.push_back(sentence);
    };
    server_ = std::make_unique<StoreServer>(std::move(options));
  }

  StoreServer& server() { return *server_; }
  const Secret& secret() const { return secret_; }
  std::string endpoint() const { return server_->endpoint(); }
  void stop() { server_.reset(); }

  StoreClientOptions client(const std::string& who = "rank 0") const {
    return {.endpoint = endpoint(), .secret = secret_, .tls = tls_, .connect_timeout = 10s, .who = who};
  }
  std::unique_ptr<Store> connect(const std::string& who = "rank 0") const {
    return connect_store(client(who));
  }

  std::vector<std::string> reports() {
    const std::lock_guard lock(mutex_);
    return reports_;
  }
  // Something with this text was reported, or soon is.
  bool reported(const std::string& text) {
    return soon([&] {
      const std::vector<std::string> all = reports();
      return std::any_of(all.begin(), all.end(),
                         [&](const auto& one) { return one.find(text) != std::string::npos; });
    });
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> reports_;
  Secret secret_;
  bool tls_;
  std::unique_ptr<StoreServer> server_;  // last: its thread reports to us until it is gone
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Set by one connection, read by another: the server works.
inline void expect_serves(TestServer& server) {
  const std::unique_ptr<Store> one = server.connect("one"), other = server.connect("other");
  one->set("alive", "yes");
  EXPECT_EQ(other->get("alive", 5s), "yes");
}

// A connection that keeps to no protocol.
class RawPeer {
 public:
  explicit RawPeer(const std::string& endpoint) {
    std::string tried;
    socket_ = connect_once(parse_endpoint(endpoint), std::chrono::steady_clock::now() + 5s, tried);
    EXPECT_TRUE(socket_) << tried;
  }
  std::string address() const { return to_text(local_end(socket_)); }
  void send(std::string_view bytes) { ::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void send(const Message& message) { send(encode(message)); }
  void close() { socket_ = Socket(); }

  // The next message; nothing when the other side closed first, or says nothing for ten seconds.
  std::optional<Message> hear() {
    for (;;) {
      if (std::optional<std::string> body = in_.take()) return decode(*body);
      char piece[4096];
      if (!wait_readable(socket_, std::chrono::steady_clock::now() + 10s)) return std::nullopt;
      const ssize_t got = ::recv(socket_.number(), piece, sizeof piece, 0);
      if (got <= 0) return std::nullopt;
      in_.add({piece, static_cast<size_t>(got)});
    }
  }

  // The other side ends the connection within ten seconds.
  bool dropped() {
    if (!socket_) return true;
    while (hear()) {
    }
    char byte;
    const ssize_t got = ::recv(socket_.number(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

  void shake_hands(const Secret& secret, const std::string& who) {
    ClientHandshake handshake(secret, who);
    send(handshake.hello());
    const std::optional<Message> challenge = hear();
    ASSERT_TRUE(challenge);
    send(handshake.proof(*challenge, "the test"));
    const std::optional<Message> welcome = hear();
    ASSERT_TRUE(welcome);
    handshake.check_welcome(*welcome, "the test");
  }

 private:
  Socket socket_;
  FrameBuffer in_;
};

// Somebody who has a port and hands on all that comes to it, both ways; one connection at a time.
class Relay {
 public:
  explicit Relay(std::string to, int port = 0)
      : listener_(listen_at("127.0.0.1", port)), to_(std::move(to)), thread_([this] { run(); }) {}
  ~Relay() {
    stop_ = true;
    thread_.join();
  }
  std::string endpoint() const { return to_text(local_end(listener_)); }
  int handed_on() const { return handed_on_; }  // connections from which something came

 private:
  static TimePoint shortly() { return std::chrono::steady_clock::now() + 5ms; }

  void run() {
    while (!stop_) {
      int error = 0;
      if (!wait_readable(listener_, shortly())) continue;
      const Socket here = accept_from(listener_, error);
      std::string tried;
      const Socket there = connect_once(parse_endpoint(to_), std::chrono::steady_clock::now() + 1s, tried);
      bool open = here && there, counted = false;
      while (open && !stop_) {
        if (wait_readable(here, shortly())) {
          open = pass(here, there);
          if (open && !counted) ++handed_on_;
          counted = true;
        }
        if (open && wait_readable(there, shortly())) open = pass(there, here);
      }
    }
  }

  static bool pass(const Socket& from, const Socket& to) {
    char piece[4096];
    const ssize_t got = ::recv(from.number(), piece, sizeof piece, 0);
    return got > 0 && ::send(to.number(), piece, static_cast<size_t>(got), MSG_NOSIGNAL) == got;
  }

  Socket listener_;
  std::string to_;
  std::atomic<bool> stop_{false};
  std::atomic<int> handed_on_{0};
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::comm
