#include "lockstep/cli/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/text.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/train/start_lines.h"
#include "lockstep/terminal/curve.h"

namespace lockstep::cli {

using base::human_bytes;
using base::human_count;
using base::human_duration;

namespace {

constexpr size_t kLabel = 8;  // columns of a start line's label

// A line for a terminal: broken between words, with the label of a start line ("memory  ...") bold and what
// follows it below each other.
std::string laid_out(const std::string& line, const terminal::Terminal& terminal) {
  const size_t end = line.find(' ');
  const bool labelled = end > 0 && end < kLabel && line.find_first_not_of(' ', end) == kLabel;
  const std::string text = base::hanging(line, terminal.width - 1, labelled ? kLabel : 2);
  return labelled ? terminal.paint(text.substr(0, end), terminal::Colour::bold) + text.substr(end) : text;
}

}  // namespace

std::string warning_line(const std::string& line, const terminal::Terminal& terminal) {
  const std::string label = "warning:";
  std::string text = label + " " + line;
  if (terminal.is_tty) text = base::hanging(text, terminal.width - 1, label.size() + 1);
  return terminal.paint(label, terminal::Colour::yellow) + text.substr(label.size());
}

Progress::Progress(const run::Plan& plan, Options options)
    : terminal_(terminal::terminal_of(STDERR_FILENO)),
      line_(stderr, terminal_),
      options_(std::move(options)),
      steps_(plan.recipe().run.steps),
      unit_(plan.unit()),
      generates_(plan.model->predicts_tokens),
      floor_(plan.dataset->entropy_floor()),
      losses_(options_.earlier) {}

void Progress::say(const std::string& lines) {
  const std::string warning = "warning: ";
  for (const std::string& line : base::split_lines(lines)) {
    if (line.starts_with(warning)) {
      warn(line.substr(warning.size()));
    } else if (!options_.quiet) {
      // A pipe gets the lines as they are: whoever searches them finds whole sentences.
      line_.print(terminal_.is_tty ? laid_out(line, terminal_) : line);
    }
  }
}

void Progress::warn(const std::string& line) { line_.print(warning_line(line, terminal_)); }

void Progress::stepped(const run::StepReport& r) {
  losses_.push_back(r.loss);
  clock_.stepped(r.step_ms);
  if (options_.quiet) return;
  std::vector<terminal::StatusPart> parts = {{fmt::format("step {}/{}", r.step, steps_)},
                                             {fmt::format("loss {:.4f}", r.loss)}};
  if (floor_) parts.push_back({fmt::format("(floor {:.4f})", *floor_), 6});
  if (r.preference)
    parts.push_back(
        {fmt::format("margin {:.3f}, {:.0f} % right", r.preference->margin(), 100 * r.preference->accuracy),
         3});
  if (eval_) parts.push_back({fmt::format("eval {:.4f}", *eval_), 3});
  const double per_second = r.tokens_per_s * r.step_ms / clock_.usual_ms();
  parts.push_back({fmt::format("{} {}/s", human_count(per_second), unit_), 2});
  if (r.mfu) parts.push_back({fmt::format("mfu {:.0f} %", *r.mfu * 100), 4});
  parts.push_back({human_bytes(r.memory_gib * (1 << 30)), 5});
  if (const std::string eta = clock_.eta(steps_ - r.step); !eta.empty()) parts.push_back({"ETA " + eta, 1});
  line_.update(
      terminal::status_line(std::move(parts), terminal_.is_tty ? terminal_.width - 1 : std::string::npos));
}

void Progress::evaluated(int64_t, double loss) { eval_ = loss; }

void Progress::event(const std::string& name, const std::string& why, int64_t step) {
  if (name == "nonfinite" || name == "checkpoint_failed" || name == "no_profile" || name == "no_graph")
    warn(why);
  if (name == "data_slow") warn(why);
  if (name == "data_fast" || name == "upload_awaited") say(why);
  if (name == "upload_failed") warn(fmt::format("step {}: {}", step, why));
  if (name == "checkpoint_saved" || name == "checkpoint_uploaded") say(fmt::format("step {}: {}", step, why));
}

std::string Progress::summary_text(const run::Summary& s) const {
  std::string text = fmt::format("{} {} of {} steps in {}", s.finished ? "done:" : "stopped:", s.steps,
                                 steps_, human_duration(s.seconds));
  if (s.averaged > 0) text += fmt::format(": loss {:.4f} in the last step", s.last_loss);
  if (s.averaged > 1) text += fmt::format(", {:.4f} on average over the last {}", s.loss, s.averaged);
  if (s.eval_loss) text += fmt::format(", {:.4f} in evaluation", *s.eval_loss);
  if (s.eval_loss && s.floor) {
    text += fmt::format(", {:.1f} % above the data's entropy {:.4f}", (*s.eval_loss / *s.floor - 1) * 100,
                        *s.floor);
  }
  return text + fmt::format("; {} {}/s", human_count(s.tokens_per_s), unit_);
}

void Progress::finish(const run::Summary& s, const std::string& folder) {
  line_.finish();
  if (options_.quiet) return;
  if (terminal_.is_tty && losses_.size() > 8) {
    const size_t width = std::min<size_t>(terminal_.width - 1, 76);
    const int64_t first = s.steps - static_cast<int64_t>(losses_.size()) + 1;
    remark("\n{}",
           terminal::draw_curve(
               losses_, {.width = width, .first = first, .last = s.steps, .unicode = terminal_.unicode}));
  }
  const size_t width = terminal_.is_tty ? terminal_.width - 1 : std::string::npos;
  std::string text = base::hanging(summary_text(s), width, 2);
  const size_t label = text.find(':') + 1;
  const terminal::Colour colour = s.finished ? terminal::Colour::green : terminal::Colour::yellow;
  remark("{}{}\n", terminal_.paint(text.substr(0, label), colour), text.substr(label));
  if (!s.sources.empty()) remark("{}", sources_text(s.sources));
  if (s.skipped > 0) remark("{} updates were skipped because their gradients were not finite\n", s.skipped);
  if (!s.finished)
    remark("run the same command again to resume from step {}\n", s.steps);
  else if (folder.find(' ') == std::string::npos)
    remark("next: lockstep {} {}\n", generates_ ? "generate" : "eval", folder);
}

}  // namespace lockstep::cli
