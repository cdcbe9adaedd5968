// Prometheus' form in a file, written whole at every look: for node_exporter's textfile collector.
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/see/prometheus.h"
#include "lockstep/see/sink.h"

namespace lockstep::see {

namespace {

class PrometheusFile final : public Sink {
 public:
  PrometheusFile(std::string path, const SinkRun& run)
      : path_(std::move(path)), folder_(run.folder), ranks_(run.folder) {
    sample_.run = run.name;
  }
  void row(const LogRow& row) override {
    sample_.step = row.step, sample_.written = row.seconds;
    for (const auto& [name, value] : row.values) newest(name) = value;
  }
  void rewind(int64_t step) override { sample_.step = step; }
  void flush() override {
    sample_.events = read_events(folder_);
    sample_.finished = !sample_.events.empty() && sample_.events.back().name == "finished";
    sample_.ranks = ranks_.look();
    const std::string text = prometheus_text({sample_});
    if (path_ == "-") {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    } else {
      base::write_file_durable(path_, text);
    }
  }

 private:
  double& newest(const std::string& name) {
    for (auto& [known, value] : sample_.last) {
      if (known == name) return value;
    }
    return sample_.last.emplace_back(name, 0).second;
  }
  std::string path_, folder_;
  RanksNow ranks_;
  PrometheusSample sample_;
};

}  // namespace

std::unique_ptr<Sink> open_prometheus(const std::string& out, const SinkRun& run) {
  return std::make_unique<PrometheusFile>(out, run);
}

}  // namespace lockstep::see
