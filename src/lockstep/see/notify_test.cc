// What people elsewhere are told of a run, and how it is sent.
#include "lockstep/see/notify.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/http/post.h"

namespace lockstep::see {
namespace {

void add(const std::string& folder, const std::string& event, int64_t step, const std::string& why) {
  base::LineWriter(folder + "/events.jsonl")
      .write(nlohmann::json{{"event", event}, {"step", step}, {"why", why}}.dump());
}

TEST(Notify, TellsWhatHappensAfterItCame) {
  const base::TemporaryFolder place;
  const std::string run = place.path() + "/first";
  base::make_folders(run);
  add(run, "hang", 3, "an earlier one");
  Notifier notifier(run, "");
  EXPECT_TRUE(notifier.fresh().empty());
  add(run, "checkpoint_saved", 4, "nobody asks");
  add(run, "rank_failed", 5, "rank 3 was killed");
  add(run, "loss_spike", 6, "from 2 to 9");
  const std::vector<Notice> notices = notifier.fresh();
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_EQ(notices[0].kind, "failure");
  EXPECT_EQ(notices[0].text, "first on " + base::host_name() + ": failure at step 5: rank 3 was killed");
  EXPECT_EQ(notices[1].kind, "spike");
  EXPECT_TRUE(notifier.fresh().empty());
  EXPECT_EQ(nlohmann::json::parse(slack_body(notices[0]))["text"], notices[0].text);
  Notifier other(run + "/", "");  // as a shell completes it
  add(run, "finished", 7, "");
  EXPECT_EQ(other.fresh().at(0).text, "first on " + base::host_name() + ": end at step 7");
}

TEST(Notify, TellsOfAnEndThatNothingExplains) {
  for (const auto& [last, told] : {std::pair("checkpoint_saved", true), std::pair("finished", false),
                                   std::pair("preempted", false), std::pair("rank_failed", false)}) {
    const base::TemporaryFolder place;
    add(place.path(), "start", 0, "");
    add(place.path(), last, 9, "why");
    Notifier notifier(place.path(), "");
    const std::vector<Notice> notices = notifier.ended();
    EXPECT_EQ(notices.size(), told ? 1u : 0u) << last;
  }
}

TEST(Notify, TellsOnlyWhatIsWanted) {
  const base::TemporaryFolder place;
  Notifier notifier(place.path(), "end,hang");
  add(place.path(), "loss_spike", 6, "from 2 to 9");
  add(place.path(), "finished", 9, "done");
  const std::vector<Notice> notices = notifier.fresh();
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].kind, "end");
  EXPECT_NE(base::refusal(109, [&] { Notifier(place.path(), "endd"); }).find("failure, hang"),
            std::string::npos);
}

TEST(Notify, TheAddressIsReadFromElsewhereAndNeverSaid) {
  const base::TemporaryFolder place;
  ::setenv("OUR_TEST_HOOK", "  https://hooks/secret\n", 1);
  EXPECT_EQ(webhook_address("env:OUR_TEST_HOOK"), "https://hooks/secret");
  base::write_file_durable(place.path() + "/hook", "http://127.0.0.1:1/x\n");
  EXPECT_EQ(webhook_address("file:" + place.path() + "/hook"), "http://127.0.0.1:1/x");
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  ::setenv("HOME", place.path().c_str(), 1);
  EXPECT_EQ(webhook_address("file:~/hook"), "http://127.0.0.1:1/x") << "a shell leaves that ~ as it is";
  ::setenv("HOME", home.c_str(), 1);
  EXPECT_NE(base::refusal(766, [] { webhook_address("env:OUR_HOOK_NOT_SET"); }), "");
  EXPECT_NE(base::refusal(766, [] { webhook_address("file:/nowhere/x"); }), "");
  const std::string refused = base::refusal(766, [] { webhook_address("https://hooks/secret"); });
  EXPECT_NE(refused, "");
  EXPECT_EQ(refused.find("hooks/secret"), std::string::npos);
}

// A server of one request: answers with `reply`, or never.
class OneRequest {
 public:
  explicit OneRequest(std::string reply) : reply_(std::move(reply)) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port = std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  ~OneRequest() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  std::string port, request;
  void wait() {
    ::shutdown(socket_, SHUT_RDWR), thread_.join(), thread_ = std::thread([] {});
  }

 private:
  void serve() {
    const int one = ::accept(socket_, nullptr, nullptr);
    if (one < 0) return;
    char buffer[4096];
    while (request.find("}") == std::string::npos) {
      const ssize_t got = ::recv(one, buffer, sizeof(buffer), 0);
      if (got <= 0) break;
      request.append(buffer, static_cast<size_t>(got));
    }
    if (reply_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    ::send(one, reply_.data(), reply_.size(), MSG_NOSIGNAL);
    ::close(one);
  }
  std::string reply_;
  int socket_ = -1;
  std::thread thread_;
};

TEST(Post, SendsAndHearsTheAnswer) {
  using namespace std::chrono_literals;
  OneRequest good("HTTP/1.1 200 OK\r\n\r\nok");
  const http::PostResult sent =
      http::post_json(*http::parse_url("http://127.0.0.1:" + good.port + "/T0/x"), R"({"text":"a"})", 5s);
  EXPECT_EQ(sent.problem, "");
  good.wait();
  EXPECT_TRUE(good.request.starts_with("POST /T0/x HTTP/1.1\r\n")) << good.request;
  EXPECT_TRUE(good.request.ends_with("\r\n\r\n{\"text\":\"a\"}")) << good.request;
  EXPECT_NE(good.request.find("\r\nHost: 127.0.0.1:" + good.port + "\r\n"), std::string::npos)
      << good.request;
  OneRequest bad("HTTP/1.1 403 no\r\n\r\n");
  EXPECT_EQ(http::post_json(*http::parse_url("http://127.0.0.1:" + bad.port), "{}", 5s).status, 403);
}

TEST(Post, DoesNotWaitForever) {
  using namespace std::chrono_literals;
  OneRequest silent("");
  const auto began = std::chrono::steady_clock::now();
  const http::PostResult result =
      http::post_json(*http::parse_url("http://127.0.0.1:" + silent.port), "{}", 200ms);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 500ms);
  EXPECT_NE(result.problem, "");
  EXPECT_NE(http::post_json(*http::parse_url("http://127.0.0.1:9/"), "{}", 1s).problem, "")
      << "nobody listens";
}

TEST(Post, ReadsAddresses) {
  EXPECT_EQ(http::parse_url("https://hooks.slack.com/services/a")->port, "443");
  EXPECT_EQ(http::parse_url("http://[::1]:8080/x")->host, "::1");
  EXPECT_EQ(http::parse_url("http://host")->path, "/");
  EXPECT_EQ(http::parse_url("http://host?a=b")->host, "host");
  EXPECT_EQ(http::parse_url("http://host?a=b")->path, "/?a=b");
  for (const char* bad :
       {"", "ftp://x", "http://", "http://a b", "http://user@host/", "http://h:99999/", "https://h/\r\nX: y"})
    EXPECT_FALSE(http::parse_url(bad)) << bad;
}

}  // namespace
}  // namespace lockstep::see
