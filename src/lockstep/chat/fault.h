// Why a conversation or a template cannot be used. Who reads the file puts its name and line before the
// sentence.
#pragma once

#include <string>

namespace lockstep::chat {

struct Fault {
  int number;            // LSxxxx
  std::string sentence;  // goes on after "FILE line N "
};

}  // namespace lockstep::chat
