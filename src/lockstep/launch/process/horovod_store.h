// Where Horovod's ranks find each other: a store of keys and values over HTTP, as horovodrun keeps one.
//
//     HorovodStore store("10.0.0.1", 29400);   // listens until it goes out of scope
//
// PUT /SCOPE/KEY keeps a body, GET gives it back (404: not yet), DELETE says that a rank has found the
// others. Like the store of PyTorch, it knows no secret: whoever reaches the port can read and write.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/http/server.h"

namespace lockstep::launch {

class HorovodStore {
 public:
  static constexpr size_t kMostBytes = 256 << 20;  // of all keys and values; more are refused
  // ConfigError 764: the port is taken.
  HorovodStore(const std::string& address, int port, size_t most_bytes = kMostBytes);
  ~HorovodStore();
  HorovodStore(const HorovodStore&) = delete;
  HorovodStore& operator=(const HorovodStore&) = delete;
  int port() const { return server_.port(); }

 private:
  http::Server server_;
  const base::Descriptor end_;
  std::thread thread_;
};

}  // namespace lockstep::launch
