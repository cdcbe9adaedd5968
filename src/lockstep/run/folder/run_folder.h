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
#include "lockstep/run/folder/earlier_run.h"
#include "lockstep/run/folder/patient_lines.h"
#include "lockstep/run/session/session.h"
#include "lockstep/run/shared/chain.h"
#include "lockstep/run/shared/observer.h"
#include "lockstep/run/shared/run_lock.h"

namespace lockstep::run {

enum class Resume : uint8_t { automatic, never, path };

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
