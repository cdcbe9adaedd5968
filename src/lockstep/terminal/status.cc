#include "lockstep/terminal/status.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/text.h"

namespace lockstep::terminal {

std::string status_line(std::vector<StatusPart> parts, size_t width) {
  constexpr std::string_view kBetween = "  ";
  while (true) {
    std::vector<std::string> texts;
    for (const StatusPart& part : parts) texts.push_back(part.text);
    std::string line = base::join(texts, kBetween);
    const auto least = std::max_element(
        parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.sacrifice < b.sacrifice; });
    if (base::display_width(line) <= width || least == parts.end() || least->sacrifice == 0) return line;
    parts.erase(least);
  }
}

void StepClock::stepped(double milliseconds) {
  constexpr double kShare = 0.05;  // of the newest step, once there are enough
  if (++count_ <= 2) {
    usual_ms_ = milliseconds;
  } else {
    const double share = std::max(kShare, 1.0 / static_cast<double>(count_ - 1));
    usual_ms_ += share * (milliseconds - usual_ms_);
  }
}

std::string StepClock::eta(int64_t steps_left) const {
  if (steps_left <= 0 || count_ < 2) return "";
  const double seconds = static_cast<double>(steps_left) * usual_ms_ / 1e3;
  return seconds < 1 ? "<1 s" : base::human_duration(seconds < 59.5 ? std::round(seconds) : seconds);
}

}  // namespace lockstep::terminal
