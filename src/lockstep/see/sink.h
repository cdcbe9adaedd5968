// Other programs' forms of a run's metrics. One form, one file, one row in the table of sinks.cc.
//
//     const auto sink = open_sink("tensorboard", "tb", {.run = "first", ...});
//     sink->row(row); ...; sink->flush();
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/see/histogram_log.h"
#include "lockstep/see/run_log.h"

namespace lockstep::see {

struct SinkRun {
  std::string name, folder;
  std::string recipe;                                     // config.toml, as it is; empty: unknown
  std::vector<std::pair<std::string, std::string>> keys;  // its values, "optim.lr" to "0.001"
  std::vector<std::string> metrics;  // names known when the sink is opened: those of a form with columns
};

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void row(const LogRow& row) = 0;
  virtual void histogram(const HistogramRow&) {}  // forms that know none leave it out
  virtual void rewind(int64_t step) = 0;          // what was told of later steps is no longer true
  virtual void flush() = 0;                       // whoever reads sees it all
};

struct SinkKind {
  const char* name;
  const char* help;
  const char* out;  // what is written without --out: "-" is standard output
  bool one_file;    // --out is a file, of one run; otherwise a folder for all
  std::unique_ptr<Sink> (*open)(const std::string& out, const SinkRun& run);
};
const std::vector<SinkKind>& sink_kinds();

std::unique_ptr<Sink> open_csv(const std::string& out, const SinkRun& run);
std::unique_ptr<Sink> open_mlflow(const std::string& out, const SinkRun& run);
std::unique_ptr<Sink> open_prometheus(const std::string& out, const SinkRun& run);
std::unique_ptr<Sink> open_wandb(const std::string& out, const SinkRun& run);
std::unique_ptr<Sink> open_tensorboard(const std::string& out, const SinkRun& run);

}  // namespace lockstep::see
