// Reading the parts of a tokenizer.json: what is there must be of the right kind, and errors name it.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/text.h"
#include "lockstep/text/fault.h"

namespace lockstep::text {

using Json = nlohmann::json;

[[noreturn]] inline void refuse(const std::string& what) { throw Fault{241, what}; }

inline const Json& member(const Json& part, const char* key) {
  if (!part.is_object() || !part.contains(key))
    refuse(fmt::format("it has no \"{}\" where one is expected", key));
  return part[key];
}
inline std::string text_of(const Json& part, const char* key) {
  const Json& value = member(part, key);
  if (!value.is_string())
    refuse(fmt::format("\"{}\" is {}, and text is expected", key, base::quoted(value.dump(), 60)));
  return value.get<std::string>();
}
inline bool flag_of(const Json& part, const char* key, bool otherwise) {
  if (!part.contains(key) || part[key].is_null()) return otherwise;
  if (!part[key].is_boolean())
    refuse(
        fmt::format("\"{}\" is {}, and true or false is expected", key, base::quoted(part[key].dump(), 60)));
  return part[key].get<bool>();
}
inline bool is_set(const Json& part, const char* key) { return part.contains(key) && !part[key].is_null(); }

// "Lowercase": what kind of step this is.
inline std::string type_of(const Json& part) { return text_of(part, "type"); }

// A step, or a value, that we do not do.
[[noreturn]] inline void refuse_kind(const char* what, const std::string& name, const std::string& known) {
  throw Fault{243,
              fmt::format("its {} {} is not supported; those that are: {}", what, base::quoted(name), known)};
}

// The table of a kind of step.
template <class Made>
struct StepRow {
  const char* type;
  Made (*make)(const Json& part);
};
template <class Made, size_t kCount>
Made make_step(const char* what, const Json& part, const StepRow<Made> (&rows)[kCount]) {
  const std::string type = type_of(part);
  std::vector<std::string> names;
  for (const StepRow<Made>& row : rows) {
    if (type == row.type) return row.make(part);
    names.emplace_back(row.type);
  }
  refuse_kind(what, type, base::join(names, ", "));
}

// {"String": ...} or {"Regex": ...}.
struct PatternText {
  std::string text;
  bool is_regex = false;
};
inline PatternText pattern_of(const Json& part) {
  const Json& pattern = member(part, "pattern");
  if (pattern.is_string()) return {pattern.get<std::string>(), false};
  if (pattern.contains("Regex")) return {text_of(pattern, "Regex"), true};
  return {text_of(pattern, "String"), false};
}

}  // namespace lockstep::text
