#include "lockstep/launch/schedulers/metadata_watch.h"

#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>

#include "lockstep/base/signals_blocked.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/schedulers/http_get.h"

namespace lockstep::launch {

namespace {

std::string ask(const std::string& server, const std::string& what) {
  return http_get({.server = server,
                   .path = "/computeMetadata/v1/instance/" + what,
                   .headers = {"Metadata-Flavor: Google"}});
}

}  // namespace

std::string metadata_server(const std::optional<std::string>& gce_metadata_host, const std::string& product) {
  if (gce_metadata_host) return *gce_metadata_host;
  return product.find("Google Compute Engine") != std::string::npos ? "169.254.169.254" : "";
}

std::string preemption_notice(const std::string& server) {
  if (ask(server, "preempted").starts_with("TRUE")) return "Compute Engine is preempting this machine";
  // MIGRATE_ON_HOST_MAINTENANCE moves the machine while it runs: no reason to stop.
  if (ask(server, "maintenance-event").starts_with("TERMINATE_ON_HOST_MAINTENANCE"))
    return "Compute Engine is stopping this machine for host maintenance";
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
