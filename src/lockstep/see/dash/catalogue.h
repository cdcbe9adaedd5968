// The runs in a folder, as a table that keeps itself up to date: a line for each, found by looking at the
// folders and at the ends of their files.
//
//     Catalogue catalogue("runs");
//     catalogue.scan();                                  // one look; a run that has not changed costs a stat
//     for (const RunSummary& run : catalogue.changed_since(0)) ...
//
// A run is any folder with metrics.jsonl or config.toml, up to three levels down. scan() is one thread's;
// everything else may be called from any thread and never waits for a disk.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::see {

struct RunSummary {
  std::string name;    // its path below the root, which is also how it is asked for: "first", "sweep/a"
  std::string folder;  // where it is
  std::string state;   // training, finished, failed, preempted, stopped, starting
  std::string why;     // of failed and preempted: what its last event says
  int64_t step = 0, steps = 0;  // done, and wanted; 0: not known
  std::optional<double> loss, eval_loss, tokens_per_s;
  double updated = 0;  // seconds since 1970 of its newest line
  std::string about;   // "gpt2, adamw, lr 0.001": what tells runs apart, for the table and for the search
  bool gone = false;   // its folder was removed
  uint64_t version = 0;
};

class Catalogue {
 public:
  explicit Catalogue(std::string root);

  void scan();
  // Those whose line is newer than this version, by name; 0: all.
  std::vector<RunSummary> changed_since(uint64_t version) const;
  uint64_t version() const;
  std::optional<RunSummary> find(const std::string& name) const;
  // Seconds since the look that is under way began; 0: none is. A dead file server shows here.
  double scanning_seconds() const;
  std::string problem() const;  // why the folder cannot be listed; empty: it can
  bool crowded() const;         // there are more runs than are shown

 private:
  struct Seen {
    RunSummary summary;
    int64_t metrics_size = -1, metrics_time = 0, config_time = 0, events_size = -1;
    bool present = false;
  };
  void look_into(const std::string& folder, const std::string& name, int depth,
                 std::vector<std::string>& found);
  void look_at(const std::string& name);

  const std::string root_;
  mutable std::mutex mutex_;
  std::map<std::string, Seen> runs_;  // written by scan() alone, under the mutex
  uint64_t version_ = 0;
  int64_t scan_began_ns_ = 0;
  std::string problem_;
  bool crowded_ = false;
};

}  // namespace lockstep::see
