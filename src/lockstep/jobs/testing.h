// A place that is not there: what its client is asked, and what it answers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/jobs/submit.h"

namespace lockstep::jobs {

class FakeClient : public Client {
 public:
  using Respond = std::function<Answer(const Command& command)>;
  explicit FakeClient(Respond respond) : respond_(std::move(respond)) {}
  Answer run(const Command& command) override {
    asked.push_back(shell_line(command.words));
    return respond_(command);
  }
  int attach(const Command& command) override { return run(command).code; }
  std::vector<std::string> asked;

 private:
  Respond respond_;
};

inline Job small_job(const std::string& kind, const std::string& state_folder) {
  Job job;
  job.id = "first-abc123";
  job.name = "first";
  job.recipe = "[run]\nname = \"first\"\n";
  job.overrides = {"optim.lr=1e-3"};
  job.state_folder = state_folder;
  job.place.name = job.place.kind = kind;
  job.place.folder = "/scratch/me";
  return job;
}

}  // namespace lockstep::jobs
