// What a person sees of a run: one live line on a terminal, plain lines in a pipe, a curve and a summary at
// the end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/run/loop/trainer.h"
#include "lockstep/terminal/live_line.h"
#include "lockstep/terminal/status.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {

// "warning: ...", for that terminal.
std::string warning_line(const std::string& line, const terminal::Terminal& terminal);

class Progress : public run::Observer {
 public:
  struct Options {
    int64_t first_step = 0;            // steps done before
    std::vector<double> earlier = {};  // their losses, for the curve
    bool quiet = false;                // only warnings
  };
  Progress(const run::Plan& plan, Options options);
  void stepped(const run::StepReport& report) override;
  void evaluated(int64_t step, double loss) override;
  void event(const std::string& name, const std::string& why, int64_t step) override;
  void say(const std::string& lines);  // what is good to know; of these, warnings even when quiet
  void warn(const std::string& line);  // even when quiet
  void finish(const run::Summary& summary, const std::string& folder);

 private:
  std::string summary_text(const run::Summary& summary) const;

  terminal::Terminal terminal_;
  terminal::LiveLine line_;
  Options options_;
  int64_t steps_;
  const char* unit_;
  bool generates_;  // its model can continue texts
  std::optional<double> floor_, eval_;
  std::vector<double> losses_;
  terminal::StepClock clock_;
};

}  // namespace lockstep::cli
