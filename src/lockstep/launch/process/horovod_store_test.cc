// The store as Horovod's ranks use it: what one puts, the others get as soon as it is there.
#include "lockstep/launch/process/horovod_store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace lockstep::launch {
namespace {

std::string ask(int port, const std::string& words) {
  const base::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.number, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) return "";
  ::send(socket.number, words.data(), words.size(), MSG_NOSIGNAL);
  std::string text;
  char piece[1000];
  for (ssize_t got = 0; (got = ::recv(socket.number, piece, sizeof piece, 0)) > 0;)
    text.append(piece, static_cast<size_t>(got));
  return text;
}

TEST(HorovodStore, KeepsWhatRanksPutThere) {
  const HorovodStore store("127.0.0.1", 0);
  const std::string get = "GET /global/0 HTTP/1.0\r\n\r\n";
  EXPECT_TRUE(ask(store.port(), get).starts_with("HTTP/1.1 404")) << "not yet";
  const std::string value("an address\0 with a zero", 23);
  EXPECT_TRUE(ask(store.port(), "PUT /global/0 HTTP/1.0\r\nContent-Length: 23\r\n\r\n" + value)
                  .starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(ask(store.port(), get).ends_with("\r\n\r\n" + value));
  EXPECT_TRUE(ask(store.port(), "GET /local_0/0 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404"))
      << "of another scope";
  EXPECT_TRUE(ask(store.port(), "DELETE /global/0 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(
      ask(store.port(), "PUT /x HTTP/1.0\r\nContent-Length: 9999999\r\n\r\n").starts_with("HTTP/1.1 413"));
}

// Whoever reaches the port cannot fill the launcher's memory: what is refused is not kept, and a value that
// is put again counts once.
TEST(HorovodStore, KeepsNoMoreThanItsLimit) {
  const HorovodStore store("127.0.0.1", 0, 20);
  const auto put = [&](const std::string& key, const std::string& value) {
    const std::string head = " HTTP/1.0\r\nContent-Length: " + std::to_string(value.size()) + "\r\n\r\n";
    return ask(store.port(), "PUT " + key + head + value).substr(9, 3);
  };
  const auto get = [&](const std::string& key) {
    return ask(store.port(), "GET " + key + " HTTP/1.0\r\n\r\n").substr(9, 3);
  };
  EXPECT_EQ(put("/a", "12345678"), "200");  // 10 bytes
  for (int k = 0; k < 5; ++k) EXPECT_EQ(put("/a", "abcdefgh"), "200") << k;
  EXPECT_EQ(put("/b", "123456789"), "413");  // 11 more
  EXPECT_EQ(get("/b"), "404");
  EXPECT_EQ(put("/b", "12345678"), "200");
  EXPECT_EQ(put("/a", ""), "200");
  EXPECT_EQ(put("/c", "123456"), "200");
  EXPECT_EQ(put("/d", ""), "413");
}

TEST(HorovodStore, ThePortIsFreeAfterwards) {
  int port = 0;
  {
    const HorovodStore store("127.0.0.1", 0);
    port = store.port();
    ask(port, "PUT /x HTTP/1.0\r\nContent-Length: 1\r\n\r\n1");
  }
  const HorovodStore again("127.0.0.1", port);
  EXPECT_EQ(again.port(), port);
  EXPECT_TRUE(ask(port, "GET /x HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404"))
      << "a round knows nothing of the one before";
}

}  // namespace
}  // namespace lockstep::launch
