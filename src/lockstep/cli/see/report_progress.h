// Inside a TrainJob of Kubeflow Trainer: a process beside the run that reports its progress and metrics to
// the job's controller. Training waits for nothing but the last report.
#pragma once

#include <functional>
#include <string>

namespace lockstep::cli {

class ProgressReporter {
 public:
  // Only where KUBEFLOW_TRAINER_SERVER_URL is set, and on the job's first node.
  void start(const std::string& folder);
  // Sends the last report, since a container ends with its first process; gives up after some seconds.
  void end() const;

 private:
  int process_ = 0;
};

// That process: reports every few seconds while `lives`, and once more when it ends or gets SIGTERM.
void report_progress(const std::string& folder, const std::function<bool()>& lives);

}  // namespace lockstep::cli
