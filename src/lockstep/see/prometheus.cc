#include "lockstep/see/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/see/valid_text.h"

namespace lockstep::see {

namespace {

// How a metric of the log is called there, in base units.
struct Gauge {
  const char *metric, *name, *type, *help;
  double unit;
};
constexpr double kGib = 1073741824.0;
constexpr Gauge kGauges[] = {
    {"loss", "loss", "gauge", "Loss of the newest logged step.", 1},
    {"eval_loss", "eval_loss", "gauge", "Loss of the newest evaluation.", 1},
    {"grad_norm", "gradient_norm", "gauge", "Norm of the gradient before clipping.", 1},
    {"lr", "learning_rate", "gauge", "Learning rate of the newest logged step.", 1},
    {"tokens", "tokens_total", "counter", "Tokens trained on so far.", 1},
    {"samples", "samples_total", "counter", "Samples trained on so far.", 1},
    {"tokens_per_s", "tokens_per_second", "gauge", "Tokens per second of the newest logged step.", 1},
    {"step_ms", "step_duration_seconds", "gauge", "Time of the newest logged step.", 1e-3},
    {"data_wait_ms", "data_wait_seconds", "gauge", "Of it, time spent waiting for data.", 1e-3},
    {"mfu", "model_flops_utilization_ratio", "gauge", "Model FLOPs over what the device could do.", 1},
    {"mem_gib", "device_memory_bytes", "gauge", "Device memory of the fullest rank.", kGib},
};

struct Counter {
  const char *event, *name, *help;
};
constexpr Counter kCounters[] = {
    {"restart", "restarts_total", "Restarts of all ranks."},
    {"rank_failed", "rank_failures_total", "Ranks that have failed."},
    {"hang", "hangs_total", "Hangs that were ended with a verdict."},
    {"preempted", "preemptions_total", "Times the run was preempted and saved."},
    {"checkpoint_saved", "checkpoints_total", "Checkpoints saved."},
    {"checkpoint_failed", "checkpoint_failures_total", "Checkpoints that could not be saved."},
    {"nonfinite", "nonfinite_total", "Losses or gradients that were not a number."},
};

// Backslashes and quotes are escaped, as the form asks; control characters and what is no UTF-8 stay out.
// Runs with letters of other languages keep them: two names must not become one.
std::string label(const std::string& text) {
  std::string out;
  for (const char c : valid_text(text)) {
    if (c == '\\' || c == '"') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '_' : c;
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// All samples of a metric stand together behind its help.
class Writer {
 public:
  void begin(const char* name, const char* type, const char* help) {
    name_ = name;
    head_ = fmt::format("# HELP lockstep_{0} {1}\n# TYPE lockstep_{0} {2}\n", name, help, type);
  }
  void add(const std::string& run, double value, int rank = -1) {
    text_ += head_;  // once, and only where there is a sample
    head_.clear();
    const std::string rank_label = rank < 0 ? "" : fmt::format(",rank=\"{}\"", rank);
    text_ += fmt::format("lockstep_{}{{run=\"{}\"{}}} {}\n", name_, label(run), rank_label, number(value));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_, head_, text_;
};

void write_ranks(const std::vector<PrometheusSample>& runs, Writer& writer) {
  struct RankGauge {
    const char *name, *help;
    double (*value)(const RankNow&);  // NaN: not known
  };
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  static const RankGauge kAll[] = {
      {"rank_up", "Whether the rank's process lives.", [](const RankNow& r) { return r.alive ? 1.0 : 0.0; }},
      {"rank_step", "Step that the rank is at.",
       [](const RankNow& r) { return static_cast<double>(r.facts.step); }},
      {"rank_step_duration_seconds", "Time from step to step, lately.",
       [](const RankNow& r) { return r.step_seconds > 0 ? r.step_seconds : kUnknown; }},
      {"rank_wait_ratio", "Part of the time spent inside collectives, lately.",
       [](const RankNow& r) { return r.waits.value_or(kUnknown); }},
      {"rank_resident_memory_bytes", "Memory of the rank's process.",
       [](const RankNow& r) { return r.memory > 0 ? static_cast<double>(r.memory) : kUnknown; }},
      {"rank_straggler", "Whether the other ranks wait for it.",
       [](const RankNow& r) { return r.straggler ? 1.0 : 0.0; }},
  };
  for (const RankGauge& gauge : kAll) {
    writer.begin(gauge.name, "gauge", gauge.help);
    for (const PrometheusSample& run : runs) {
      for (const RankNow& rank : run.ranks) {
        if (const double value = gauge.value(rank); !std::isnan(value))
          writer.add(run.run, value, rank.facts.rank);
      }
    }
  }
}

}  // namespace

PrometheusSample sample_of(const RunLog& log, RanksNow& ranks) {
  PrometheusSample sample{
      .run = log.name(), .finished = log.finished(), .last = {}, .events = {}, .ranks = {}};
  const MetricTable& rows = log.rows();
  if (!rows.empty()) sample.step = rows.step(rows.size() - 1), sample.written = rows.seconds(rows.size() - 1);
  for (const std::string& name : rows.names()) sample.last.emplace_back(name, rows.last(name));
  sample.events = read_events(log.folder());
  sample.ranks = ranks.look();
  return sample;
}

std::string prometheus_text(const std::vector<PrometheusSample>& runs) {
  Writer writer;
  writer.begin("step", "gauge", "Steps done.");
  for (const PrometheusSample& run : runs) writer.add(run.run, static_cast<double>(run.step));
  writer.begin("finished", "gauge", "Whether the run has done all of its steps.");
  for (const PrometheusSample& run : runs) writer.add(run.run, run.finished ? 1 : 0);
  writer.begin("last_log_timestamp_seconds", "gauge", "When the run last logged a step.");
  for (const PrometheusSample& run : runs) {
    if (run.written > 0) writer.add(run.run, run.written);
  }
  for (const Gauge& gauge : kGauges) {
    writer.begin(gauge.name, gauge.type, gauge.help);
    for (const PrometheusSample& run : runs) {
      for (const auto& [name, value] : run.last) {
        if (name == gauge.metric) writer.add(run.run, value * gauge.unit);
      }
    }
  }
  for (const Counter& counter : kCounters) {
    writer.begin(counter.name, "counter", counter.help);
    for (const PrometheusSample& run : runs) {
      writer.add(run.run, static_cast<double>(std::count_if(
                              run.events.begin(), run.events.end(),
                              [&](const RunEvent& event) { return event.name == counter.event; })));
    }
  }
  write_ranks(runs, writer);
  return writer.take();
}

}  // namespace lockstep::see
