// What expressions do with values, as Python and Jinja do it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/chat/jinja/run.h"
#include "lockstep/chat/jinja/value.h"

namespace lockstep::chat::jinja {

Value attribute(const Value& of, std::string_view name);  // of.name: attributes first, then keys
Value item(const Value& of, const Value& key);            // of[key]: keys first, then attributes
bool has_slices(const Value& of);
Value slice(const Value& of, const Value& first, const Value& last, const Value& step);
Value binary(std::string_view operation, const Value& a, const Value& b);
Value negated(const Value& value);
std::string formatted(const std::string& pattern, const Value& values);  // pattern % values
Value call(const Value& function, const Arguments& arguments);

// A method of a string, list or dictionary, bound to it.
std::optional<Value> method(const Value& of, std::string_view name);

Value filter(Run& run, const std::string& name, const Value& input, const Arguments& arguments);
bool test(Run& run, const std::string& name, const Value& value, const Arguments& arguments);
bool has_filter(const std::string& name);
bool has_test(const std::string& name);

// range, dict, namespace, raise_exception, strftime_now.
void add_globals(Scope& scope, std::time_t now);

// An argument of some kind, or Failure.
int64_t int_of(const Value& value);
const std::string& str_of(const Value& value);

}  // namespace lockstep::chat::jinja
