// Jinja's tests (`is defined`) and the functions that every template can call.
#include <fmt/format.h>

#include <map>

#include "lockstep/chat/jinja/operations.h"
#include "lockstep/text/normalize.h"

namespace lockstep::chat::jinja {

namespace {

using Test = bool (*)(const Value& value, const Arguments& arguments);

const Value& other(const Arguments& a) {
  if (a.positional.empty()) fail("the test needs something to compare with");
  return a.positional[0];
}

bool is_number(const Value& v) { return v.get<int64_t>() || v.get<double>() || v.get<bool>(); }
bool is_string(const Value& v) { return v.get<std::string>() != nullptr; }
bool is_list(const Value& v) { return v.get<List>() != nullptr && v.get<List>()->view == nullptr; }
bool is_dict(const Value& v) { return v.get<Dict>() != nullptr; }

Test equal = [](const Value& v, const Arguments& a) { return is_equal(v, other(a)); };
Test unequal = [](const Value& v, const Arguments& a) { return !is_equal(v, other(a)); };
Test below = [](const Value& v, const Arguments& a) { return compare(v, other(a)) < 0; };
Test above = [](const Value& v, const Arguments& a) { return compare(v, other(a)) > 0; };
Test at_most = [](const Value& v, const Arguments& a) { return compare(v, other(a)) <= 0; };
Test at_least = [](const Value& v, const Arguments& a) { return compare(v, other(a)) >= 0; };

bool leaves(const Value& v, const Value& by, int64_t rest) {
  return is_equal(binary("%", v, by), Value(rest));
}

const std::map<std::string, Test>& tests() {
  static const std::map<std::string, Test> all = {
      {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
      {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
      {"boolean", [](const Value& v, const Arguments&) { return v.get<bool>() != nullptr; }},
      {"true", [](const Value& v, const Arguments&) { return v.get<bool>() != nullptr && *v.get<bool>(); }},
      {"false", [](const Value& v, const Arguments&) { return v.get<bool>() != nullptr && !*v.get<bool>(); }},
      {"integer", [](const Value& v, const Arguments&) { return v.get<int64_t>() != nullptr; }},
      {"float", [](const Value& v, const Arguments&) { return v.get<double>() != nullptr; }},
      {"number", [](const Value& v, const Arguments&) { return is_number(v); }},
      {"string", [](const Value& v, const Arguments&) { return is_string(v); }},
      {"mapping", [](const Value& v, const Arguments&) { return is_dict(v); }},
      {"iterable",
       [](const Value& v, const Arguments&) {
         return v.is_undefined() || is_string(v) || v.get<List>() || is_dict(v) || v.get<Generator>();
       }},
      {"sequence",
       [](const Value& v, const Arguments&) {
         return v.is_undefined() || is_string(v) || is_list(v) || is_dict(v);
       }},
      {"callable",
       [](const Value& v, const Arguments&) {
         return v.get<Function>() != nullptr || (v.object() != nullptr && v.object()->call);
       }},
      {"sameas",
       [](const Value& v, const Arguments& a) {
         return v.identity() != nullptr ? v.identity() == other(a).identity()
                                        : type_name(v) == type_name(other(a)) && is_equal(v, other(a));
       }},
      {"odd", [](const Value& v, const Arguments&) { return leaves(v, Value(2), 1); }},
      {"even", [](const Value& v, const Arguments&) { return leaves(v, Value(2), 0); }},
      {"divisibleby", [](const Value& v, const Arguments& a) { return leaves(v, other(a), 0); }},
      {"lower",
       [](const Value& v, const Arguments&) { return is_true(call(*method(to_str(v), "islower"), {})); }},
      {"upper",
       [](const Value& v, const Arguments&) { return is_true(call(*method(to_str(v), "isupper"), {})); }},
      {"escaped",
       [](const Value&, const Arguments&) { return false; }},  // nothing is: e and escape give plain text
      {"in", [](const Value& v, const Arguments& a) { return contains(other(a), v); }},
      {"filter", [](const Value& v, const Arguments&) { return has_filter(to_str(v)); }},
      {"test", [](const Value& v, const Arguments&) { return has_test(to_str(v)); }},
      {"eq", equal},
      {"equalto", equal},
      {"ne", unequal},
      {"lt", below},
      {"lessthan", below},
      {"gt", above},
      {"greaterthan", above},
      {"le", at_most},
      {"ge", at_least},
      // Where a test is named by a string: select("==", 1).
      {"==", equal},
      {"!=", unequal},
      {"<", below},
      {"<=", at_most},
      {">", above},
      {">=", at_least},
  };
  return all;
}

Value range(const Arguments& a) {
  if (a.positional.empty() || a.positional.size() > 3) fail("range takes one to three integers");
  const int64_t first = a.positional.size() == 1 ? 0 : int_of(a.positional[0]);
  const int64_t last = int_of(a.positional[a.positional.size() == 1 ? 0 : 1]);
  const int64_t step = a.positional.size() == 3 ? int_of(a.positional[2]) : 1;
  if (step == 0) fail("range() arg 3 must not be zero");
  const long double count =
      (static_cast<long double>(last) - static_cast<long double>(first)) / static_cast<long double>(step);
  if (count > 100'000) fail("range too big: templates may count to 100000");
  List list;
  for (int64_t at = first; step > 0 ? at < last : at > last; at += step) list.items.emplace_back(at);
  return list;
}

Value make_namespace(const Arguments& a) {
  auto object = std::make_shared<Object>();
  object->type = "Namespace";
  object->writable = true;
  for (const Value& given : a.positional) {
    const Dict* dict = given.get<Dict>();
    if (dict == nullptr) fail("namespace takes names, or a dictionary");
    for (const auto& [key, value] : dict->items) object->attributes.emplace_back(to_str(key), value);
  }
  for (const auto& [name, value] : a.named) object->attributes.emplace_back(name, value);
  return object;
}

Value make_dict(const Arguments& a) {
  Dict dict;
  if (!a.positional.empty()) {
    const Dict* given = a.positional[0].get<Dict>();
    if (given == nullptr) fail("dict takes names, or a dictionary");
    dict = *given;
  }
  for (const auto& [name, value] : a.named) dict.set(Value(name), value);
  return dict;
}

std::string time_text(std::time_t now, const std::string& format) {
  std::tm local{};
  ::localtime_r(&now, &local);
  std::string text(256 + format.size() * 16, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  return text;
}

}  // namespace

bool has_test(const std::string& name) { return tests().contains(name); }

bool test(Run&, const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) fail(fmt::format("No test named '{}'.", name));
  return found->second(value, arguments);
}

void add_globals(Scope& scope, std::time_t now) {
  scope.set("range", Function{"range", range});
  scope.set("dict", Function{"dict", make_dict});
  scope.set("namespace", Function{"namespace", make_namespace});
  scope.set("raise_exception",
            Function{"raise_exception", [](const Arguments& a) -> Value {
                       fail(to_str(a.get(0, "message", "the template refuses these messages")));
                     }});
  scope.set("strftime_now", Function{"strftime_now", [now](const Arguments& a) {
                                       return Value(time_text(now, to_str(a.get(0, "format", ""))));
                                     }});
}

}  // namespace lockstep::chat::jinja
