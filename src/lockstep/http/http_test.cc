// Requests that are well formed, and those that are not; a server among slow, rude and greedy clients.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/refusal.h"
#include "lockstep/http/server.h"

namespace lockstep::http {
namespace {

TEST(Request, OnlyPlainRequestsAreTaken) {
  struct Row {
    std::string head;
    bool good;
  };
  const Row rows[] = {
      {"GET / HTTP/1.1\r\n\r\n", true},
      {"GET /a%20b?x=1&x=2&y=%2F HTTP/1.0\r\nHost: h\r\n\r\n", true},
      {"GET / HTTP/1.1\r\nHost:h\r\nX-Empty:\r\n\r\n", true},
      {"GET / HTTP/2\r\n\r\n", false},
      {"GET HTTP/1.1\r\n\r\n", false},
      {"GET  / HTTP/1.1\r\n\r\n", false},
      {"GET http://other/ HTTP/1.1\r\n\r\n", false},
      {"GET /%0 HTTP/1.1\r\n\r\n", false},
      {"GET /%00 HTTP/1.1\r\n\r\n", false},
      {"GET /?a=%zz HTTP/1.1\r\n\r\n", false},
      {"GET / HTTP/1.1\r\nno colon\r\n\r\n", false},
      {"GET / HTTP/1.1\r\nspace : x\r\n\r\n", false},
      {"GET / HTTP/1.1\r\n folded\r\n\r\n", false},
      {std::string("GET / HTTP/1.1\r\nA: \0\r\n\r\n", 24), false},
      {"GET / HTTP/1.1\nHost: h\n\n", false},
      {"\r\n\r\n", false},
      {"", false},
      {"GET /" + std::string(kLongestHead, 'a') + " HTTP/1.1\r\n\r\n", false},
  };
  for (const Row& row : rows)
    EXPECT_EQ(parse_request(row.head).has_value(), row.good) << row.head.substr(0, 60);
}

TEST(Request, PartsAreDecoded) {
  const auto request = parse_request(
      "GET /a%2Fb?run=one+two&run=%C3%A4&empty HTTP/1.1\r\nCookie: a=1; token=abc; b=2\r\nCONNECTION: "
      "Close\r\n\r\n");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->path, "/a/b");
  EXPECT_EQ(request->values("run"), (std::vector<std::string>{"one two", "\xC3\xA4"}));
  EXPECT_EQ(request->value("empty"), "");
  EXPECT_EQ(request->cookie("token"), "abc");
  EXPECT_EQ(request->cookie("tok"), "");
  EXPECT_FALSE(request->keep_alive);
}

// A server in this process, and clients that write what they like.
class Serving {
 public:
  explicit Serving(ServerOptions options = {}) : server_(options) {
    if (::pipe(stop_) != 0) ADD_FAILURE();
    thread_ = std::thread([this] { server_.serve(stop_[0], answer); });
  }
  ~Serving() {
    if (::write(stop_[1], "x", 1) != 1) ADD_FAILURE();
    thread_.join();
    ::close(stop_[0]), ::close(stop_[1]);
  }
  int port() const { return server_.port(); }

  int connect() const {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET, to.sin_port = htons(static_cast<uint16_t>(server_.port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return socket;
  }
  // Everything that comes until the server closes, or `enough` is in it.
  static std::string read_all(int socket, const std::string& enough = "") {
    std::string text;
    char piece[1000];
    for (ssize_t got = 0; (got = ::recv(socket, piece, sizeof piece, 0)) > 0;) {
      text.append(piece, static_cast<size_t>(got));
      if (!enough.empty() && text.find(enough) != std::string::npos) break;
    }
    return text;
  }
  std::string talk(const std::string& words) const {
    const base::Descriptor socket(connect());
    ::send(socket.number, words.data(), words.size(), MSG_NOSIGNAL);
    return read_all(socket.number);
  }

 private:
  static Reply answer(const Request& request) {
    if (request.path == "/throws") throw std::runtime_error("a sentence");
    if (request.path == "/stream") {
      auto left = std::make_shared<int>(3);
      return {.type = "text/event-stream", .stream = [left]() -> std::optional<std::string> {
                if (*left == 0) return std::nullopt;
                return "piece " + std::to_string((*left)--) + "\n";
              }};
    }
    if (!request.body.empty()) return {.body = request.method + " of " + request.body};
    return {.body = "path " + request.path};
  }
  Server server_;
  int stop_[2];
  std::thread thread_;
};

TEST(Server, AnswersAndRefuses) {
  const Serving serving({.head_seconds = 0.3});
  struct Row {
    const char *words, *says;
  };
  const std::string endless = "GET / HTTP/1.1\r\nA: " + std::string(kLongestHead, 'a');
  const Row rows[] = {
      {"GET /x HTTP/1.0\r\n\r\n", "path /x"},
      {"GET /x HTTP/1.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 OK"},
      {"HEAD /x HTTP/1.0\r\n\r\n", "Content-Length: 7"},
      {"POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"},
      {"DELETE / HTTP/1.0\r\n\r\n", "405"},
      {"\x16\x03\x01 TLS \r\n\r\n", "400 Bad Request"},
      {"GET / HTT", "408 Request Timeout"},
      {endless.c_str(), "431"},
      {"GET /throws HTTP/1.0\r\n\r\n", "a sentence"},
      {"GET /stream HTTP/1.1\r\n\r\n", "piece 3\npiece 2\npiece 1\n"},
  };
  for (const Row& row : rows) {
    const std::string reply = serving.talk(row.words);
    EXPECT_NE(reply.find(row.says), std::string::npos) << row.words << "\n" << reply;
  }
  EXPECT_EQ(serving.talk("HEAD /x HTTP/1.0\r\n\r\n").find("path"), std::string::npos);
}

TEST(Server, BodiesWhereTheyAreWanted) {
  const Serving serving({.head_seconds = 0.3, .most_body = 8});
  struct Row {
    const char *words, *says;
  };
  const Row rows[] = {
      {"PUT /x HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", "PUT of abc"},
      {"DELETE /x HTTP/1.0\r\n\r\n", "path /x"},
      {"PUT /x HTTP/1.1\r\nContent-Length: 2\r\n\r\nabGET /next HTTP/1.0\r\n\r\n", "path /next"},
      {"PUT /x HTTP/1.1\r\nContent-Length: 9\r\n\r\n", "413"},
      {"PUT /x HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", "400"},
      {"PUT /x HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400"},
      {"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "411"},
      {"PUT /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc", "408"},
  };
  for (const Row& row : rows) {
    const std::string reply = serving.talk(row.words);
    EXPECT_NE(reply.find(row.says), std::string::npos) << row.words << "\n" << reply;
  }
}

TEST(Server, OneConnectionAsksAgainAndManyDoNotBlock) {
  const Serving serving;
  const base::Descriptor first(serving.connect());
  for (const std::string path : {"/one", "/two"}) {
    const std::string words = "GET " + path + " HTTP/1.1\r\n\r\n";
    ::send(first.number, words.data(), words.size(), MSG_NOSIGNAL);
    EXPECT_NE(Serving::read_all(first.number, "path " + path).find("path " + path), std::string::npos);
  }
  std::vector<std::unique_ptr<base::Descriptor>> silent;  // they say nothing and keep their connection
  for (int i = 0; i < kMostConnections + 5; ++i)
    silent.push_back(std::make_unique<base::Descriptor>(serving.connect()));
  EXPECT_NE(serving.talk("GET / HTTP/1.0\r\n\r\n").find("503"), std::string::npos);
  silent.clear();
  std::string reply;
  for (int i = 0; i < 100 && reply.find("200") == std::string::npos; ++i) {
    ::usleep(50'000);
    reply = serving.talk("GET / HTTP/1.0\r\n\r\n");
  }
  EXPECT_NE(reply.find("200 OK"), std::string::npos);
}

TEST(Server, APortThatIsTaken) {
  const Serving serving;
  EXPECT_NE(base::refusal(764, [&] { Server({.port = serving.port()}); }), "");
  EXPECT_NE(base::refusal(764, [&] { Server({.host = "192.0.2.1"}); }), "");
  EXPECT_NE(base::refusal(764, [&] { Server({.host = "no such host"}); }), "");
  EXPECT_NE(Server({.port = serving.port(), .or_any_port = true}).port(), serving.port());
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
  EXPECT_FALSE(is_loopback("192.0.2.1"));
}

}  // namespace
}  // namespace lockstep::http
