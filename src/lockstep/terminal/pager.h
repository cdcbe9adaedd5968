// Standard output through the user's pager (PAGER, otherwise less) for as long as this lives, where it is a
// terminal: long text can be scrolled and searched, and what fits the screen is printed as ever.
//
//     const Pager pager;
//     print(...);
#pragma once

#include <sys/types.h>

namespace lockstep::terminal {

class Pager {
 public:
  Pager();
  ~Pager();  // returns when the reader has seen enough
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;
  bool is_used() const { return child_ > 0; }

 private:
  pid_t child_ = -1;
  int screen_ = -1;  // standard output as it was
};

}  // namespace lockstep::terminal
