// The run folder: config.toml, record.json, metrics.jsonl, events.jsonl, checkpoints/. Made once, then found
// again.
//
// Running again in a folder goes on where it was, or says why it will not: other keys, or already done. What
// "auto" meant the first time is kept.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/run/folder/patient_lines.h"
#include "lockstep/run/session/session.h"
#include "lockstep/run/shared/chain.h"
#include "lockstep/run/shared/observer.h"
#include "lockstep/run/shared/run_lock.h"

namespace lockstep::run {

enum class Resume : uint8_t { automatic, never, path };

// What stands in the folder before a run.
struct Earlier {
  bool exists = false;
  std::string checkpoint;  // folder of the newest complete checkpoint; empty when there is none
  int64_t step = 0;        // of that checkpoint
};
Earlier look_at(const std::string& folder);

// Keys that the user left at "auto" take the value that an earlier run in this folder found. ConfigError 160
// lists keys that differ from that run's, and what to do.
void adopt_earlier(recipe::Resolved& resolved, const std::string& folder);
void refuse_changes(const recipe::Resolved& resolved, const std::string& folder);
// The same before everything is resolved, for keys that the user has set.
void refuse_said_changes(const recipe::Resolved& resolved, const std::string& folder);

// What a checkpoint was saved with; nothing when it does not say, or another version said it.
std::optional<recipe::Recipe> recipe_of(const std::string& checkpoint);

// The folder's complete checkpoints that a run of this recipe saved, newest first. Others lie there too when
// a run was started over, or from one of them, with other keys: going on from those would mix two runs.
struct OwnCheckpoints {
  std::vector<std::string> folders;
  int64_t step = 0;         // of the first
  std::string passed_over;  // the others, with the keys that differ; lines for a person
  void drop_newest();
};
OwnCheckpoints checkpoints_of(const std::string& folder, const recipe::Resolved& resolved);

// Whether a run in this folder has ever saved, as far as is left to tell of it.
bool has_saved(const std::string& folder);

// How a run of so many steps ended, what Summary says of it: by the event "finished", or else by
// metrics.jsonl, as far as lines were kept.
struct RecordedEnd {
  std::optional<double> loss;       // mean of the last tenth
  std::optional<double> last_loss;  // of the last step, where it was logged
  std::optional<double> eval_loss;
};
// The losses of its first `steps` steps, where metrics.jsonl has them; each stands for the steps that were
// not logged before it. Empty where there are none.
std::vector<double> recorded_losses(const std::string& folder, int64_t steps);
RecordedEnd recorded_end(const std::string& folder, int64_t steps);

// What a run that begins in a folder is to the one that wrote there before.
enum class History : uint8_t {
  fresh,    // another, which starts over: its lines go
  goes_on,  // the same
  other     // another, which goes on from a checkpoint that was named
};
struct Begun {
  std::vector<std::string> changes;  // since the numerics record of the earlier run, one line each
  std::string missing;               // steps whose lines metrics.jsonl should have and has not, in words
};

// Writes the folder's files; an Observer that keeps metrics.jsonl and events.jsonl.
class RunFolder : public Observer {
 public:
  // Makes the folder and takes its lock: nothing in it is touched before.
  explicit RunFolder(std::string folder, Holder holder = Holder::alone);
  const std::string& path() const { return folder_; }
  // config.toml and record.json; lines of metrics past `first_step`, left by a run that was cut off, are
  // dropped. What stands there and cannot be read is not replaced: IoError 801 or 818.
  Begun begin(const Plan& plan, int64_t first_step, History history = History::fresh);

  // Told why when lines begin to wait for a disk; they are written when a later one can be.
  std::function<void(const std::string& why)> on_trouble;
  std::string unwritten() const;  // at the end: what still waits, in words; empty: nothing

  void stepped(const StepReport& report) override;
  void evaluated(int64_t step, double loss) override;
  void histogram(int64_t step, const std::string& block, const base::Histogram& gradient) override;
  void event(const std::string& name, const std::string& why, int64_t step) override;
  // What the event "finished" is to tell, for recorded_end().
  void ends(const RecordedEnd& end) { end_ = end; }

 private:
  void write(PatientLines& lines, std::string line);
  void begin_chain(const Plan& plan, const nlohmann::json& record, int64_t first_step, History history);

  std::string folder_;
  RunLock lock_;
  std::unique_ptr<PatientLines> metrics_, events_;
  std::unique_ptr<PatientLines> histograms_;  // with log.histograms
  std::optional<Chain> chain_;                // with log.chain
  int64_t every_ = 1;
  RecordedEnd end_;
};

}  // namespace lockstep::run
