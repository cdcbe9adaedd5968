// lockstep metrics: what a run has logged, in the form of other programs; once, or for as long as it trains.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/cli/see/metrics_listen.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/cli/see/serving.h"
#include "lockstep/see/recipe_keys.h"
#include "lockstep/see/sink.h"

namespace lockstep::cli {

namespace {

const see::SinkKind& kind_of(const std::string& word) {
  std::vector<std::string> names;
  for (const see::SinkKind& kind : see::sink_kinds()) {
    if (word == kind.name) return kind;
    names.push_back(kind.name);
  }
  throw base::ConfigError(
      109, fmt::format("--to {}: expected one of {}", base::quoted(word), base::join(names, ", ")));
}

// What the run is, as far as its folder tells: config.toml may be of another version.
see::SinkRun about(const see::RunLog& log) {
  see::SinkRun run{
      .name = log.name(), .folder = log.folder(), .recipe = {}, .keys = {}, .metrics = log.rows().names()};
  constexpr int64_t kMost = int64_t{1} << 20;
  const base::ReadResult file = base::try_read_file(log.folder() + "/config.toml", kMost);
  if (!file.problem.empty()) return run;
  run.recipe = file.text;
  run.keys = see::recipe_keys_of(file.text);
  return run;
}

struct Followed {
  see::RunLog log;
  see::HistogramLog histograms;
  std::unique_ptr<see::Sink> sink;

  void pass_on() {
    if (const auto step = log.rewound_to()) sink->rewind(*step), histograms.rewind(*step);
    for (size_t i = log.fresh(); i < log.rows().size(); ++i) sink->row(log.rows()[i]);
    for (const see::HistogramRow& row : histograms.poll()) sink->histogram(row);
    sink->flush();
  }
};

void print_summary(const std::vector<Followed>& runs, bool json) {
  for (const Followed& one : runs) {
    const auto& rows = one.log.rows();
    nlohmann::json last = nlohmann::json::object();
    for (const std::string& name : rows.names()) last[name] = rows.last(name);
    for (const auto& [name, word] : rows.last_words()) last[name] = word;
    if (json) {
      report_json(nlohmann::json{{"run", one.log.folder()},
                                 {"rows", rows.size()},
                                 {"step", rows.empty() ? 0 : rows.step(rows.size() - 1)},
                                 {"finished", one.log.finished()},
                                 {"left_out", one.log.left_out()},
                                 {"last", last}});
      continue;
    }
    print("{}: {} rows, step {}, {}\n", one.log.folder(), rows.size(),
          rows.empty() ? 0 : rows.step(rows.size() - 1), one.log.finished() ? "finished" : "not finished");
    if (one.log.left_out() > 0) print("  lines that are no metrics, left out: {}\n", one.log.left_out());
    for (const auto& [name, value] : last.items())
      print("  {:<16} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

}  // namespace

int metrics_command(Arguments& arguments) {
  std::vector<std::string> folders;
  std::string to, out, host = "127.0.0.1";
  int64_t port = -1;  // not given
  bool follow = false, json = false;
  arguments.rest("RUN", folders, "run folders, or names of runs in runs/");
  std::string forms = "the form:";
  for (const see::SinkKind& kind : see::sink_kinds()) forms += fmt::format(" {} ({});", kind.name, kind.help);
  arguments.option("--to", to, forms + " default: print the last values");
  arguments.option("--out", out,
                   "where: a file (default: standard output), or a folder for TensorBoard or MLflow");
  arguments.flag("--follow,-f", follow, "keep writing while the run trains; Ctrl-C ends it");
  arguments.option("--listen", port, "answer a Prometheus that asks on this port; 0: a free one");
  arguments.option("--host", host, "with --listen: the address; default: 127.0.0.1, for this machine only");
  arguments.flag("--json", json, "print the last values as JSON");
  arguments.example("lockstep metrics runs/first", "the last value of each metric");
  arguments.example("lockstep metrics runs/first --to csv --out first.csv", "for pandas.read_csv");
  arguments.example("lockstep metrics runs/* --to tensorboard --follow",
                    "then: tensorboard --logdir tensorboard");
  arguments.example("lockstep metrics runs/first --listen 9400",
                    "http://127.0.0.1:9400/metrics for Prometheus");
  if (!arguments.parse()) return 0;
  if (folders.empty())
    throw base::ConfigError(109, "metrics needs a run folder: lockstep metrics runs/first");
  folders = run_folders_named(folders);
  if (port != -1) {
    if (!to.empty() || !out.empty() || follow || json)
      throw base::ConfigError(109, "--listen goes with --host alone: Prometheus comes and asks");
    return listen_for_prometheus(folders, host, checked_port("--listen", port));
  }
  std::vector<Followed> runs;
  for (const std::string& folder : folders) {
    runs.push_back({see::RunLog(folder), see::HistogramLog(folder), nullptr});
    runs.back().log.poll();
  }
  if (to.empty()) {
    if (follow || !out.empty())
      throw base::ConfigError(109, "--follow and --out need --to, such as --to csv");
    print_summary(runs, json);
    return 0;
  }
  const see::SinkKind& kind = kind_of(to);
  const std::string target = out.empty() ? kind.out : out;
  if (runs.size() > 1 && kind.one_file)
    throw base::ConfigError(109, fmt::format("--to {} takes one run; call it once for each", kind.name));
  for (Followed& one : runs) {
    one.sink = kind.open(target, about(one.log));
    one.pass_on();
  }
  if (target != "-") remark("writing {}\n", target);
  constexpr std::chrono::milliseconds kPause(1000);
  const auto all_done = [&] {
    return std::all_of(runs.begin(), runs.end(), [](const Followed& one) { return one.log.finished(); });
  };
  while (follow) {
    const bool done = all_done();  // asked before the last look, so that nothing is missed
    for (Followed& one : runs) {
      if (one.log.poll()) one.pass_on();
    }
    if (done) break;
    std::this_thread::sleep_for(kPause);
  }
  return 0;
}

}  // namespace lockstep::cli
