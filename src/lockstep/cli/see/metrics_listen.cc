// lockstep metrics RUN... --listen PORT: what runs are at, for a Prometheus that asks.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/see/metrics_listen.h"
#include "lockstep/cli/see/serving.h"
#include "lockstep/http/server.h"
#include "lockstep/see/prometheus.h"

namespace lockstep::cli {

namespace {

// One run, read again whenever somebody asks.
struct Watched {
  see::RunLog log;
  see::RanksNow ranks;
  std::string name;
};

class Exporter {
 public:
  explicit Exporter(const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
      see::RunLog log(folder);
      const std::string name = log.name();
      const auto same = [&](const Watched& other) {
        std::error_code error;
        return std::filesystem::equivalent(other.log.folder(), log.folder(), error);
      };
      if (std::ranges::any_of(runs_, same)) continue;  // named twice
      bool taken = false;                              // series of two runs must not be one
      for (Watched& other : runs_) {
        if (other.log.name() != name) continue;
        other.name = other.log.folder();
        taken = true;
      }
      runs_.push_back({std::move(log), see::RanksNow(folder), taken ? folder : name});
    }
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    std::vector<see::PrometheusSample> samples;
    for (Watched& run : runs_) {
      try {
        run.log.poll();
        samples.push_back(see::sample_of(run.log, run.ranks));
        samples.back().run = run.name;
      } catch (const base::Error&) {
        // Its file is gone or cannot be read now: it has no samples, as a target that is down.
      }
    }
    return see::prometheus_text(samples);
  }

 private:
  std::mutex mutex_;
  std::vector<Watched> runs_;
};

}  // namespace

int listen_for_prometheus(const std::vector<std::string>& folders, const std::string& host, int port) {
  const base::Descriptor stop(stop_descriptor());
  const auto exporter = std::make_shared<Exporter>(folders);
  http::Server server({.host = host, .port = port});
  print("{}/metrics\n", address_of(host, server.port()));
  std::fflush(stdout);
  if (!http::is_loopback(host)) remark("warning: anyone who can reach {} can read these numbers\n", host);
  server.serve(stop.number, [exporter](const http::Request& request) -> http::Reply {
    if (request.path == "/metrics") return {.type = see::kPrometheusType, .body = exporter->text()};
    return {.status = 404, .type = "text/plain", .body = "the metrics are at /metrics\n"};
  });
  return 0;
}

}  // namespace lockstep::cli
