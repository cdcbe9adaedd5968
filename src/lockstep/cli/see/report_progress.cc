#include "lockstep/cli/see/report_progress.h"

#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/see/notify.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/see/kubeflow.h"
#include "lockstep/see/run_log.h"

namespace lockstep::cli {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kEvery = 5s;  // as the controller's documentation asks
constexpr auto kAnswer = 5s, kLastWord = 6s;

std::atomic<bool> asked_to_end = false;

// Others of the job's nodes may see the same run folder.
bool first_node() {
  for (const char* name : {"PET_NODE_RANK", "GROUP_RANK", "NODE_RANK", "JOB_COMPLETION_INDEX"}) {
    if (base::environment(name).value_or("0") != "0") return false;
  }
  return true;
}

// What the run has logged; nothing before its first line.
class Progress {
 public:
  explicit Progress(std::string folder) : folder_(std::move(folder)) {}
  std::string status() {
    try {
      if (!log_) log_.emplace(folder_);
      log_->poll();
    } catch (const base::Error&) {
      log_.reset();  // not there yet, or unreadable for now
    }
    const bool finished = log_ && log_->finished();
    return see::trainer_status(log_ ? log_->rows() : see::MetricTable{}, steps_wanted(folder_),
                               {.finished = finished, .now = base::utc_timestamp()});
  }

 private:
  std::string folder_;
  std::optional<see::RunLog> log_;
};

}  // namespace

void ProgressReporter::start(const std::string& folder) {
  std::string problem;
  if (see::trainer_server(&problem) && first_node()) process_ = start_beside(folder, {"--kubeflow"});
  if (!problem.empty()) remark("progress is not reported: {}\n", problem);
}

void ProgressReporter::end() const {
  if (process_ <= 0) return;
  ::kill(process_, SIGTERM);
  const auto until = Clock::now() + kLastWord;
  while (::waitpid(process_, nullptr, WNOHANG) == 0) {
    if (Clock::now() > until) ::kill(process_, SIGKILL);
    std::this_thread::sleep_for(10ms);
  }
}

void report_progress(const std::string& folder, const std::function<bool()>& lives) {
  std::string problem;
  const auto server = see::trainer_server(&problem);
  if (!server)
    throw base::ConfigError(
        766, "--kubeflow: " + (problem.empty() ? "KUBEFLOW_TRAINER_SERVER_URL is not set" : problem));
  struct sigaction action {};
  action.sa_handler = [](int) { asked_to_end = true; };
  ::sigaction(SIGTERM, &action, nullptr);
  take_signals();
  Progress progress(folder);
  std::string said;
  auto next = Clock::now();
  for (bool last = false; !last;) {
    last = asked_to_end || !lives();
    if (last || Clock::now() >= next) {
      const http::PostResult sent =
          http::post_json(server->url, progress.status(), kAnswer, see::credentials_of(*server));
      if (!sent.problem.empty() && sent.problem != said)  // once, not every five seconds
        remark("notify: Kubeflow Trainer was not told of the progress: {}\n", sent.problem);
      said = sent.problem;
      next = Clock::now() + kEvery;
    }
    if (!last) std::this_thread::sleep_for(50ms);
  }
}

}  // namespace lockstep::cli
