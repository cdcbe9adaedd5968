#include "lockstep/cli/see/serving.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::cli {

int stop_descriptor() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, one);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return ::signalfd(-1, &signals, SFD_CLOEXEC);
}

int checked_port(const std::string& option, int64_t port) {
  constexpr int64_t kMost = 65535;
  if (port < 0 || port > kMost) throw base::ConfigError(109, option + ": expected a port from 0 to 65535");
  return static_cast<int>(port);
}

std::string address_of(const std::string& host, int port) {
  const bool any = host == "0.0.0.0" || host == "::";
  const std::string name = any                                   ? base::host_name()
                           : host.find(':') != std::string::npos ? "[" + host + "]"
                                                                 : host;
  return fmt::format("http://{}:{}", name, port);
}

}  // namespace lockstep::cli
