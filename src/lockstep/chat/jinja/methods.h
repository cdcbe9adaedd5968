// The two tables of methods: those of strings (text_methods.cc) and those of lists and dictionaries
// (methods.cc, which also finds one by its name).
#pragma once

#include <span>
#include <string_view>

#include "lockstep/chat/jinja/value.h"

namespace lockstep::chat::jinja {

struct MethodRow {
  std::string_view name;
  size_t most;  // arguments that it takes: one more is refused, never passed over
  Value (*call)(const Value& self, const Arguments& arguments);
  std::string_view keywords = {};  // of those that may be given by name; "*": any
};

std::span<const MethodRow> text_methods();

// The second and third argument of find(), index(), count() and the like: from where to where they look, of
// `count` places. None there: first > last.
struct Places {
  int64_t first, last;
};
Places places_of(int64_t count, const Arguments& arguments);

}  // namespace lockstep::chat::jinja
