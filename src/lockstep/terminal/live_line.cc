#include "lockstep/terminal/live_line.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/text.h"

namespace lockstep::terminal {
namespace {

constexpr int64_t kFrameNs = 50'000'000;
constexpr int64_t kFirstIntervalNs = 500'000'000, kLastIntervalNs = 10'000'000'000;

// A progress line is one line: no newlines, no escapes that would move the cursor.
std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return out;
}

}  // namespace

LiveLine::LiveLine(std::FILE* out, Terminal terminal, std::function<int64_t()> now)
    : out_(out), terminal_(terminal), now_(now ? std::move(now) : base::monotonic_ns) {}

LiveLine::~LiveLine() { finish(); }

void LiveLine::update(std::string_view text) {
  text_ = printable(text);
  drawn_ = false;
  const int64_t now = now_();
  if (now < next_ns_) return;
  draw();
  if (terminal_.is_tty) {
    next_ns_ = now + kFrameNs;
  } else {
    interval_ns_ = std::clamp(2 * interval_ns_, kFirstIntervalNs, kLastIntervalNs);
    next_ns_ = now + interval_ns_;
  }
}

void LiveLine::draw() {
  drawn_ = true;
  if (terminal_.is_tty) {
    // One column stays free: some terminals wrap when the last one is written.
    std::fprintf(out_, "\r\033[K%s", base::cut_to_width(text_, terminal_.width - 1).c_str());
    on_line_ = true;
  } else {
    std::fprintf(out_, "%s\n", text_.c_str());
  }
  std::fflush(out_);
}

void LiveLine::print(std::string_view text) {
  if (on_line_) std::fputs("\r\033[K", out_);
  std::fprintf(out_, "%s\n", (terminal_.is_tty ? harmless(text) : std::string(text)).c_str());
  if (on_line_) draw();
  std::fflush(out_);
}

void LiveLine::finish() {
  if (!drawn_) draw();
  if (on_line_) std::fputc('\n', out_);
  on_line_ = false;
  std::fflush(out_);
}

}  // namespace lockstep::terminal
