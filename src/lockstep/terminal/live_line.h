// One line of progress: rewritten in place on a terminal, printed now and then in a pipe.
//
//     LiveLine line(stderr, terminal_of(STDERR_FILENO));
//     line.update("step 12  loss 3.1");      // as often as you like
//     line.print("checkpoint saved");        // a line that stays
//     line.finish();                         // leaves the last update standing
//
// On a terminal a line is never longer than the width, and is drawn at most 20 times a second. In a pipe
// updates come out at doubling intervals up to every 10 s, without control characters.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "lockstep/terminal/terminal.h"

namespace lockstep::terminal {

class LiveLine {
 public:
  // `now` is for tests: nanoseconds, monotonic_ns() if empty. Does not own `out`.
  LiveLine(std::FILE* out, Terminal terminal, std::function<int64_t()> now = {});
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  void update(std::string_view text);
  void print(std::string_view text);
  void finish();

 private:
  void draw();

  std::FILE* out_;
  Terminal terminal_;
  std::function<int64_t()> now_;
  std::string text_;
  bool drawn_ = true;     // text_ is on the screen or in the pipe
  bool on_line_ = false;  // the cursor stands after an unfinished line
  int64_t next_ns_ = 0;   // not before
  int64_t interval_ns_ = 0;
};

}  // namespace lockstep::terminal
