#include "lockstep/launch/process/horovod_store.h"

#include <sys/eventfd.h>

#include <map>
#include <mutex>

namespace lockstep::launch {

namespace {

constexpr size_t kMostBody = 1 << 20;  // of a value

struct Values {
  explicit Values(size_t most) : most_bytes(most) {}
  const size_t most_bytes;
  std::mutex mutex;
  std::map<std::string, std::string> by_key;
  size_t bytes = 0;

  http::Reply answer(const http::Request& request) {
    const http::Reply done{.type = "application/octet-stream"};
    const std::lock_guard lock(mutex);
    if (request.method == "PUT") return keep(request) ? done : http::Reply{.status = 413, .type = done.type};
    if (request.method == "DELETE") return done;
    const auto found = by_key.find(request.path);
    if (found == by_key.end()) return {.status = 404, .type = done.type};
    return {.type = done.type, .body = found->second};
  }

  bool keep(const http::Request& request) {
    const auto old = by_key.find(request.path);
    const size_t before = old == by_key.end() ? 0 : old->first.size() + old->second.size(),
                 after = request.path.size() + request.body.size();
    if (bytes - before + after > most_bytes) return false;
    bytes += after - before;
    by_key[request.path] = request.body;
    return true;
  }
};

}  // namespace

HorovodStore::HorovodStore(const std::string& address, int port, size_t most_bytes)
    : server_({.host = address,
               .port = port,
               .idle_seconds = 10,
               .most_connections = 1024,
               .most_body = kMostBody}),
      end_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this, most_bytes] {
        server_.serve(end_.number, [values = std::make_shared<Values>(most_bytes)](
                                       const http::Request& request) { return values->answer(request); });
      }) {}

HorovodStore::~HorovodStore() {
  ::eventfd_write(end_.number, 1);
  thread_.join();
}

}  // namespace lockstep::launch
