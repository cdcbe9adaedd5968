// What a person sees of `lockstep train`: the plan, the progress, the profile's table and the summary; or
// JSON.
#pragma once

#include <optional>
#include <string>

#include "lockstep/cli/train/progress.h"
#include "lockstep/train.h"

namespace lockstep::cli {

class TrainScreen : public TrainObserver {
 public:
  struct Options {
    bool json = false, timing = false, quiet = false, dry_run = false;
    const base::Laps& laps;
  };
  explicit TrainScreen(Options options) : options_(options) {}

  void planned(const Planned& planned) override;
  void profiled(const run::Session& session, const run::Profile& profile, const std::string& trace) override;
  void stepped(const run::StepReport& report) override { progress_->stepped(report); }
  void evaluated(int64_t step, double loss) override { progress_->evaluated(step, loss); }
  void event(const std::string& name, const std::string& why, int64_t step) override;
  void ended(const TrainResult& result) override { progress_->finish(result.summary, result.folder); }

  void note(const std::string& line) override;
  void remark(const std::string& line) override;
  void warn(const std::string& line) override;
  void launcher(const std::string& lines) override;

 private:
  bool shows_json_alone() const { return options_.json && options_.dry_run; }

  Options options_;
  std::optional<Progress> progress_;  // from the plan on
};

// The report of --json, on standard output: of the first rank, or of a run that was done before.
void print_result(const TrainResult& result);

}  // namespace lockstep::cli
