#include "lockstep/launch/schedulers/metadata_watch.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>

#include "lockstep/base/signals_blocked.h"
#include "lockstep/launch/options.h"

namespace lockstep::launch {

namespace {

constexpr int kPatienceMs = 1000;
constexpr size_t kMostReply = 64 << 10;
constexpr const char* kPaths = "/computeMetadata/v1/instance/";

bool wait_for(int socket, short what) {
  pollfd one{socket, what, 0};
  return ::poll(&one, 1, kPatienceMs) == 1 && (one.revents & what) != 0;
}

int connect_to(const std::string& server) {
  const size_t colon = server.rfind(':');
  const std::string host = server.substr(0, colon);
  const std::string port = colon == std::string::npos ? "80" : server.substr(colon + 1);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return -1;
  const int socket =
      ::socket(found->ai_family, found->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, found->ai_protocol);
  int error = 0;
  if (socket >= 0 && ::connect(socket, found->ai_addr, found->ai_addrlen) != 0) {
    socklen_t size = sizeof error;
    if (errno != EINPROGRESS || !wait_for(socket, POLLOUT) ||
        ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
      error = 1;
    }
  }
  ::freeaddrinfo(found);
  if (error == 0) return socket;
  ::close(socket);
  return -1;
}

// The body of a reply with status 200, or nothing.
std::string ask(const std::string& server, const std::string& what) {
  const int socket = connect_to(server);
  if (socket < 0) return "";
  const std::string request =
      fmt::format("GET {}{} HTTP/1.0\r\nHost: {}\r\nMetadata-Flavor: Google\r\nConnection: close\r\n\r\n",
                  kPaths, what, server);
  std::string reply;
  if (::send(socket, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    char piece[4096];
    while (reply.size() < kMostReply && wait_for(socket, POLLIN)) {
      const ssize_t got = ::recv(socket, piece, sizeof piece, 0);
      if (got <= 0) break;
      reply.append(piece, static_cast<size_t>(got));
    }
  }
  ::close(socket);
  const size_t body = reply.find("\r\n\r\n");
  const bool good = reply.starts_with("HTTP/1.") && reply.substr(8, 5) == " 200 ";
  return good && body != std::string::npos ? reply.substr(body + 4) : "";
}

}  // namespace

std::string metadata_server(const std::optional<std::string>& gce_metadata_host, const std::string& product) {
  if (gce_metadata_host) return *gce_metadata_host;
  return product.find("Google Compute Engine") != std::string::npos ? "169.254.169.254" : "";
}

std::string preemption_notice(const std::string& server) {
  if (ask(server, "preempted").starts_with("TRUE")) return "Compute Engine preempts this machine";
  // MIGRATE_ON_HOST_MAINTENANCE moves the machine while it runs: no reason to stop.
  if (ask(server, "maintenance-event").starts_with("TERMINATE_ON_HOST_MAINTENANCE"))
    return "Compute Engine stops this machine for maintenance of its host";
  return "";
}

MetadataWatch::MetadataWatch(std::string server, std::function<void(const std::string&)> tell)
    : thread_([server = std::move(server), tell = std::move(tell)](const std::stop_token& stop) {
        const base::SignalsBlocked blocked;
        std::mutex mutex;
        std::condition_variable_any alarm;
        std::unique_lock lock(mutex);
        while (!stop.stop_requested()) {
          if (const std::string why = preemption_notice(server); !why.empty()) return tell(why);
          alarm.wait_for(lock, stop, std::chrono::seconds(1), [&] { return stop.stop_requested(); });
        }
      }) {}

std::unique_ptr<MetadataWatch> MetadataWatch::here(std::function<void(const std::string&)> say) {
  std::string product;
  std::getline(std::ifstream("/sys/class/dmi/id/product_name"), product);
  const std::string server = metadata_server(process_variable("GCE_METADATA_HOST"), product);
  if (server.empty()) return nullptr;
  return std::make_unique<MetadataWatch>(server, [say = std::move(say)](const std::string& why) {
    say(why + ": saving and stopping");
    ::kill(::getpid(), SIGTERM);
  });
}

}  // namespace lockstep::launch
