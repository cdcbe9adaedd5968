// One plain HTTP request to a server of the local network, such as a cloud's metadata server: no TLS, no
// redirects, and a reply that fits into memory many times. What the other side says may be anything.
//
// Not by cpp-httplib: Debian builds it as a shared library with OpenSSL and Brotli behind it, which every
// start of the program would have to load (docs/dependencies.md).
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/options.h"

namespace lockstep::launch {

struct HttpRequest {
  std::string server;                     // "host" or "host:port"
  std::string path;                       // "/computeMetadata/v1/instance/preempted"
  std::vector<std::string> headers = {};  // "Metadata-Flavor: Google"
  Duration patience{1000};                // for each answer on the way
};

// The body of a reply with status 200; empty: no server, no reply in time, or another status.
std::string http_get(const HttpRequest& request);

}  // namespace lockstep::launch
