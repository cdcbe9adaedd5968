// What a person sees of a run: one live line on a terminal, plain lines in a pipe, a curve and a summary at
// the end.
#pragma once

#include <optional>
#include <vector>

#include "lockstep/base/live_line.h"
#include "lockstep/base/terminal.h"
#include "lockstep/run/trainer.h"

namespace lockstep::cli {

class Progress : public run::Observer {
 public:
  Progress(const run::Plan& plan, int64_t first_step);
  void stepped(const run::StepReport& report) override;
  void evaluated(int64_t step, double loss) override;
  void event(const std::string& name, const std::string& why, int64_t step) override;
  void say(const std::string& line) { line_.print(line); }
  void finish(const run::Summary& summary, const std::string& folder);

 private:
  base::Terminal terminal_;
  base::LiveLine line_;
  int64_t steps_, first_step_;
  std::optional<double> floor_, eval_;
  std::vector<double> losses_;
  double smooth_ms_ = 0;
};

// The lines before the first step: model, data, batch and what exactness allows, memory.
std::string start_lines(const run::Session& session, const std::string& folder);

}  // namespace lockstep::cli
