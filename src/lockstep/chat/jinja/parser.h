// Reads a template: tokens become the functions that render it.
#pragma once

#include <string_view>

#include "lockstep/chat/jinja/run.h"

namespace lockstep::chat::jinja {

struct Program {
  Statement body;
  bool marks_generation = false;  // it has a {% generation %}
};

// Failure: what cannot be read, or is not supported, with its line.
Program parse(std::string_view source);

}  // namespace lockstep::chat::jinja
