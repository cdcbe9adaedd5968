// Compute Engine's own word that a machine will be taken away, passed on as SIGTERM to this process.
//
// Looks once a second at `instance/preempted` and `instance/maintenance-event` of the metadata server: only
// on Compute Engine, or where GCE_METADATA_HOST names a server (as Google's libraries have it).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace lockstep::launch {

// "host" or "host:port" of the metadata server; empty where there is none.
std::string metadata_server(const std::optional<std::string>& gce_metadata_host, const std::string& product);

// Why this machine will go, in words; empty: it stays, or nobody answers. Waits two seconds at most.
std::string preemption_notice(const std::string& server);

class MetadataWatch {
 public:
  // `tell` is called once, from another thread, with the reason.
  MetadataWatch(std::string server, std::function<void(const std::string& why)> tell);
  // For this process and machine: says the reason and raises SIGTERM. Null where there is nothing to watch.
  static std::unique_ptr<MetadataWatch> here(std::function<void(const std::string& sentence)> say);

 private:
  std::jthread thread_;
};

}  // namespace lockstep::launch
