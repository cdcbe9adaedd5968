// lockstep attach: the live line of a run that trains elsewhere: in the background, under a scheduler, on
// another machine that shares the folder. It only reads; Ctrl-C leaves the run alone.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/see/run_view.h"
#include "lockstep/see/dash/catalogue.h"
#include "lockstep/see/run_events.h"
#include "lockstep/terminal/live_line.h"

namespace lockstep::cli {

namespace {

class Attached {
 public:
  explicit Attached(const std::string& folder)
      : folder_(folder),
        catalogue_(folder),
        steps_(steps_wanted(folder)),
        line_(stderr, terminal::terminal_of(STDERR_FILENO)) {
    const std::vector<see::RunEvent> events = see::read_events(folder);
    constexpr size_t kShown = 3;
    told_ = events.size() > kShown ? events.size() - kShown : 0;
  }

  // Until it has ended; its exit code.
  int follow() {
    while (true) {
      catalogue_.scan();
      const auto run = catalogue_.find(".");
      const std::string state = run ? run->state : "gone";
      const bool trains = state == "training" || state == "starting";
      show(trains);
      if (!trains) return end(state);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  }

 private:
  void show(bool trains) {
    const std::vector<see::RunEvent> events = see::read_events(folder_);
    if (told_ > events.size()) told_ = 0;  // another run began here
    for (; told_ < events.size(); ++told_) {
      const see::RunEvent& event = events[told_];
      if (event.name != "first_step")
        line_.print(fmt::format("step {}: {}: {}", event.step, event.name, event.why));
    }
    if (!log_ && std::filesystem::exists(folder_ + "/metrics.jsonl")) log_.emplace(folder_);
    if (log_) log_->poll();
    const std::string now = log_ ? progress_text(*log_, steps_, trains) : "starting";
    if (now != shown_) line_.update(now);  // in a pipe each update is a line
    shown_ = now;
  }
  int end(const std::string& state) {
    line_.finish();
    if (state == "finished") return 0;
    constexpr int kPreempted = 75;
    line_.print(fmt::format("it is {}; `lockstep why {}` says more", state, folder_));
    return state == "preempted" ? kPreempted : 1;
  }

  std::string folder_;
  see::Catalogue catalogue_;
  std::optional<see::RunLog> log_;
  int64_t steps_;
  size_t told_ = 0;
  std::string shown_;
  terminal::LiveLine line_;
};

}  // namespace

int attach_command(Arguments& arguments) {
  std::string name;
  arguments.positional("RUN", name, "a run folder or a run in runs/; default: the run that wrote last");
  arguments.example("lockstep attach", "the newest run in runs/, until it ends; Ctrl-C leaves it alone");
  arguments.example("lockstep train first.toml --detach && lockstep attach first",
                    "in the background, watched");
  if (!arguments.parse()) return 0;
  return Attached(wanted_run(name, "attach")).follow();
}

}  // namespace lockstep::cli
