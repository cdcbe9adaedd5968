#include "lockstep/chat/jinja/template.h"

#include <fmt/format.h>

#include "lockstep/chat/jinja/operations.h"

namespace lockstep::chat::jinja {

Template::Template(std::string_view source) : program_(parse(source)) {}

Output Template::render(const std::vector<std::pair<std::string, Value>>& names, std::time_t now) const {
  Scope root;
  add_globals(root, now != 0 ? now : std::time(nullptr));
  for (const auto& [name, value] : names) root.set(name, value);
  Run run;
  run.scope = &root;
  Output out;
  try {
    program_.body(run, out);
  } catch (const Failure& failure) {
    throw Failure(fmt::format("{} (line {})", failure.what(), run.line));
  }
  return out;
}

}  // namespace lockstep::chat::jinja
