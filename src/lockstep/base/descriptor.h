// An open file, socket or memory by its number, closed when it goes out of scope. A negative number is none.
#pragma once

#include <unistd.h>

namespace lockstep::base {

struct Descriptor {
  const int number;
  explicit Descriptor(int n) : number(n) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

}  // namespace lockstep::base
