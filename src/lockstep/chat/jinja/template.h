// A Jinja template, as far as chat templates go: what Hugging Face's sandbox renders, byte for byte, and without what
// it would refuse. Any template and any values end: nesting, steps and output are bounded.
//
//     const Template greeting("{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}");
//     greeting.render({{"messages", messages}}).text;
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/chat/jinja/parser.h"
#include "lockstep/chat/jinja/run.h"
#include "lockstep/chat/jinja/value.h"

namespace lockstep::chat::jinja {

class Template {
 public:
  explicit Template(std::string_view source);  // Failure: cannot be read
  // Failure, with its line: what goes wrong while it renders, raise_exception() among it.
  Output render(const std::vector<std::pair<std::string, Value>>& names, std::time_t now = 0) const;
  bool marks_generation() const { return program_.marks_generation; }

 private:
  Program program_;
};

}  // namespace lockstep::chat::jinja
