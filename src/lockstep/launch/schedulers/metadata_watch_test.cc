#include "lockstep/launch/schedulers/metadata_watch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>

namespace lockstep::launch {
namespace {

// A metadata server on the loopback interface, one request after the other.
class Server {
 public:
  Server() {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 16), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    name = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  void set(const std::string& path, const std::string& reply) {
    const std::lock_guard lock(mutex_);
    replies_[path] = reply;
  }
  std::string name;
  std::atomic<int> asked{0};

 private:
  void serve() {
    for (int peer = 0; (peer = ::accept(socket_, nullptr, nullptr)) >= 0; ::close(peer)) {
      char request[2048] = {};
      if (::recv(peer, request, sizeof request - 1, 0) <= 0) continue;
      ++asked;
      const std::string text = request, path = text.substr(4, text.find(' ', 4) - 4);
      EXPECT_NE(text.find("Metadata-Flavor: Google\r\n"), std::string::npos);
      const std::lock_guard lock(mutex_);
      const std::string& reply = replies_[path.substr(path.rfind('/') + 1)];
      ::send(peer, reply.data(), reply.size(), MSG_NOSIGNAL);
    }
  }
  int socket_ = -1;
  std::mutex mutex_;
  std::map<std::string, std::string> replies_;
  std::thread thread_;
};

std::string ok(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Type: application/text\r\n\r\n" + body;
}

TEST(Metadata, OnlyOnComputeEngineOrWhereTold) {
  EXPECT_EQ(metadata_server(std::nullopt, "PowerEdge"), "");
  EXPECT_EQ(metadata_server(std::nullopt, "Google Compute Engine"), "169.254.169.254");
  EXPECT_EQ(metadata_server("localhost:80", ""), "localhost:80");
}

TEST(Metadata, WhatTheServerSays) {
  Server server;
  struct Case {
    std::string preempted, maintenance, says;
  };
  const Case cases[] = {
      {ok("FALSE"), ok("NONE"), ""},
      {ok("TRUE"), ok("NONE"), "preempting"},
      {ok("FALSE"), ok("TERMINATE_ON_HOST_MAINTENANCE"), "maintenance"},
      {ok("FALSE"), ok("MIGRATE_ON_HOST_MAINTENANCE"), ""},
      {"HTTP/1.1 404 Not Found\r\n\r\nTRUE", ok("NONE"), ""},
      {"TRUE", "TRUE", ""},
      {"", "", ""},
      {"HTTP/1.1 200 OK\r\n" + std::string(200000, 'x'), ok("NONE"), ""},
  };
  for (const Case& one : cases) {
    server.set("preempted", one.preempted);
    server.set("maintenance-event", one.maintenance);
    const std::string notice = preemption_notice(server.name);
    EXPECT_EQ(notice.empty(), one.says.empty()) << notice;
    EXPECT_NE(notice.find(one.says), std::string::npos) << notice;
  }
  EXPECT_EQ(preemption_notice("127.0.0.1:1"), "") << "nobody listens there";
}

TEST(Metadata, TellsOnceAndStopsAsking) {
  Server server;
  server.set("preempted", ok("FALSE"));
  server.set("maintenance-event", ok("NONE"));
  std::atomic<int> told{0};
  {
    const MetadataWatch watch(server.name, [&](const std::string&) { ++told; });
    for (int k = 0; k < 1500 && server.asked < 2; ++k)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(told, 0);
    server.set("preempted", ok("TRUE"));
    for (int k = 0; k < 1500 && told == 0; ++k) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace lockstep::launch
