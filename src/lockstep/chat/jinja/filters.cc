// Jinja's filters, as far as chat templates use them; tojson is Hugging Face's, which escapes nothing for HTML.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/chat/jinja/operations.h"
#include "lockstep/chat/jinja/strings.h"

namespace lockstep::chat::jinja {

namespace {

using Filter = Value (*)(Run& run, const Value& input, const Arguments& arguments);

Value by_method(const Value& input, std::string_view name, const Arguments& arguments = {}) {
  const Value text = to_str(input);
  return call(*method(text, name), arguments);
}

// "a.b.0": an attribute of an attribute.
Value path_of(const Value& value, const Value& path) {
  if (path.get<int64_t>() != nullptr) return item(value, path);
  Value found = value;
  std::string_view rest = str_of(path);
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool index = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    found = index ? item(found, Value(static_cast<int64_t>(std::stoll(std::string(part))))) : item(found, Value(part));
    if (dot == std::string_view::npos) return found;
    rest.remove_prefix(dot + 1);
  }
}

Value sorted(Run&, const Value& input, const Arguments& a) {
  std::vector<Value> items = items_of(input);
  const bool reverse = is_true(a.get(0, "reverse", false)), exact = is_true(a.get(1, "case_sensitive", false));
  const Value path = a.get(2, "attribute", None{});
  const auto key = [&](const Value& one) {
    Value value = path.is_none() ? one : path_of(one, path);
    return !exact && value.get<std::string>() != nullptr ? by_method(value, "lower") : value;
  };
  std::stable_sort(items.begin(), items.end(), [&](const Value& x, const Value& y) {
    return reverse ? compare(key(y), key(x)) < 0 : compare(key(x), key(y)) < 0;
  });
  return List{items};
}

Value dictsort(Run&, const Value& input, const Arguments& a) {
  const Dict* dict = input.get<Dict>();
  if (dict == nullptr) fail("dictsort takes a dictionary");
  const bool exact = is_true(a.get(0, "case_sensitive", false)), reverse = is_true(a.get(2, "reverse", false));
  const bool by_value = to_str(a.get(1, "by", "key")) == "value";
  auto items = dict->items;
  const auto key = [&](const std::pair<Value, Value>& one) {
    const Value& value = by_value ? one.second : one.first;
    return !exact && value.get<std::string>() != nullptr ? by_method(value, "lower") : value;
  };
  std::stable_sort(items.begin(), items.end(), [&](const auto& x, const auto& y) {
    return reverse ? compare(key(y), key(x)) < 0 : compare(key(x), key(y)) < 0;
  });
  List pairs;
  for (const auto& [name, value] : items) pairs.items.emplace_back(List{{name, value}, true});
  return pairs;
}

// Those of Jinja's filters that choose take anything false as empty, none among it.
std::vector<Value> items_or_none(const Value& input) {
  return is_true(input) ? items_of(input) : std::vector<Value>();
}

Value map(Run& run, const Value& input, const Arguments& a) {
  List out{.items = {}, .tuple = false, .lazy = true};
  const Value* path = a.find(SIZE_MAX, "attribute");
  const Value* otherwise = a.find(SIZE_MAX, "default");
  if (path == nullptr && (a.positional.empty() || !has_filter(to_str(a.positional[0]))))
    fail("map takes attribute=, or the name of a filter");
  for (const Value& one : items_or_none(input)) {
    if (path != nullptr) {
      Value found = path_of(one, *path);
      out.items.push_back(found.is_undefined() && otherwise != nullptr ? *otherwise : found);
    } else {
      Arguments rest{{a.positional.begin() + 1, a.positional.end()}, a.named};
      out.items.push_back(filter(run, to_str(a.positional[0]), one, rest));
    }
  }
  return out;
}

// select, reject, selectattr, rejectattr: those for which a test holds, or does not.
Value chosen(Run& run, const Value& input, const Arguments& a, bool by_attribute, bool wanted) {
  const size_t skipped = by_attribute ? 1 : 0;
  if (a.positional.size() < skipped) fail("the attribute's name is missing");
  const bool tested = a.positional.size() > skipped;
  const std::string name = tested ? to_str(a.positional[skipped]) : "";
  if (tested && !has_test(name)) fail("no test is called " + name);
  List out{.items = {}, .tuple = false, .lazy = true};
  for (const Value& one : items_or_none(input)) {
    const Value value = by_attribute ? path_of(one, a.positional[0]) : one;
    bool holds = is_true(value);
    if (tested) {
      const Arguments rest{{a.positional.begin() + static_cast<ptrdiff_t>(skipped) + 1, a.positional.end()}, a.named};
      holds = test(run, name, value, rest);
    }
    if (holds == wanted) out.items.push_back(one);
  }
  return out;
}

Value joined(Run&, const Value& input, const Arguments& a) {
  const std::string between = to_str(a.get(0, "d", ""));
  const Value path = a.get(1, "attribute", None{});
  std::string out;
  bool first = true;
  for (const Value& one : items_of(input)) {
    if (!std::exchange(first, false)) out += between;
    out += to_str(path.is_none() ? one : path_of(one, path));
  }
  return out;
}

Value tojson(Run&, const Value& input, const Arguments& a) {
  const Value ascii = a.get(0, "ensure_ascii", false), wide = a.get(1, "indent", None{});
  const Value separators = a.get(2, "separators", None{}), sort = a.get(3, "sort_keys", false);
  std::optional<int64_t> indent;
  if (!wide.is_none()) indent = std::clamp<int64_t>(int_of(wide), 0, 100);
  std::string between = indent ? "," : ", ", behind_key = ": ";
  if (!separators.is_none()) {
    const std::vector<Value> two = items_of(separators);
    if (two.size() != 2) fail("separators are two strings");
    between = str_of(two[0]);
    behind_key = str_of(two[1]);
  }
  return to_json(input, indent, is_true(ascii), is_true(sort), between, behind_key);
}

Value indented(Run&, const Value& input, const Arguments& a) {
  const Value width = a.get(0, "width", 4);
  const bool first = is_true(a.get(1, "first", false)), blank = is_true(a.get(2, "blank", false));
  const std::string space = width.get<std::string>() != nullptr
                                ? str_of(width)
                                : std::string(static_cast<size_t>(std::clamp<int64_t>(int_of(width), 0, 1000)), ' ');
  const std::string& text = str_of(input);
  std::string out = first ? space : "";
  for (size_t at = 0;;) {
    const size_t end = text.find('\n', at);
    out.append(text, at, end == std::string::npos ? end : end - at);
    if (end == std::string::npos) return out;
    out += '\n';
    at = end + 1;
    const bool is_blank = at >= text.size() || text[at] == '\n';
    if (blank || !is_blank) out += space;
  }
}

Value rounded(Run&, const Value& input, const Arguments& a) {
  const int64_t digits = int_of(a.get(0, "precision", 0));
  const std::string how = to_str(a.get(1, "method", "common"));
  const double* real = input.get<double>();
  const double number = real != nullptr ? *real : static_cast<double>(int_of(input));
  if (how == "common") {  // half to even, as Python's round()
    if (real == nullptr && digits >= 0) return binary("+", input, Value(0));
    return std::stod(fmt::format("{:.{}f}", number, std::clamp<int64_t>(digits, 0, 300)));
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  return (how == "ceil" ? std::ceil(number * scale) : std::floor(number * scale)) / scale;
}

Value to_int(Run&, const Value& input, const Arguments& a) {
  if (const Undefined* undefined = input.get<Undefined>()) fail(undefined->what);
  const Value otherwise = a.get(0, "default", 0);
  if (const double* real = input.get<double>())
    return std::isfinite(*real) && std::abs(*real) < 9e18 ? Value(static_cast<int64_t>(*real)) : otherwise;
  if (input.get<int64_t>() != nullptr || input.get<bool>() != nullptr) return int_of(input);
  if (input.get<std::string>() == nullptr) return otherwise;
  const std::string text(stripped(str_of(input)));
  size_t used = 0;
  try {
    const int64_t number = std::stoll(text, &used, static_cast<int>(int_of(a.get(1, "base", 10))));
    if (used == text.size()) return number;
    const double real = std::stod(text, &used);
    if (used == text.size()) return static_cast<int64_t>(real);
  } catch (const std::exception&) {
  }
  return otherwise;
}

Value to_float(Run&, const Value& input, const Arguments& a) {
  if (const Undefined* undefined = input.get<Undefined>()) fail(undefined->what);
  const Value otherwise = a.get(0, "default", 0.0);
  if (input.get<double>() != nullptr) return input;
  if (input.get<int64_t>() != nullptr || input.get<bool>() != nullptr) return static_cast<double>(int_of(input));
  if (input.get<std::string>() == nullptr) return otherwise;
  const std::string text(stripped(str_of(input)));
  size_t used = 0;
  try {
    const double number = std::stod(text, &used);
    if (used == text.size()) return number;
  } catch (const std::exception&) {
  }
  return otherwise;
}

Value unique(Run&, const Value& input, const Arguments& a) {
  const bool exact = is_true(a.get(0, "case_sensitive", false));
  const Value path = a.get(1, "attribute", None{});
  std::vector<Value> seen;
  List out{.items = {}, .tuple = false, .lazy = true};
  for (const Value& one : items_of(input)) {
    Value key = path.is_none() ? one : path_of(one, path);
    if (!exact && key.get<std::string>() != nullptr) key = by_method(key, "lower");
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return is_equal(other, key); })) continue;
    seen.push_back(key);
    out.items.push_back(one);
  }
  return out;
}

Value extreme(const Value& input, const Arguments& a, int sign) {
  const Value path = a.get(1, "attribute", None{});
  Value best = Undefined{"No aggregated item, sequence was empty."};
  for (const Value& one : items_of(input)) {
    const auto key = [&](const Value& value) { return path.is_none() ? value : path_of(value, path); };
    if (best.is_undefined() || compare(key(one), key(best)) * sign > 0) best = one;
  }
  return best;
}

Value sum(Run&, const Value& input, const Arguments& a) {
  const Value path = a.get(0, "attribute", None{});
  Value total = a.get(1, "start", 0);
  for (const Value& one : items_of(input)) total = binary("+", total, path.is_none() ? one : path_of(one, path));
  return total;
}

Value escaped(Run&, const Value& input, const Arguments&) {
  std::string out;
  for (const char c : to_str(input)) {
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&#34;" : c == '\'' ? "&#39;" : std::string(1, c);
  }
  return out;
}

Value or_default(Run&, const Value& input, const Arguments& a) {
  const bool also_false = is_true(a.get(1, "boolean", false));
  return input.is_undefined() || (also_false && !is_true(input)) ? a.get(0, "default_value", "") : input;
}

Value reversed(Run&, const Value& input, const Arguments&) {
  if (input.get<std::string>() != nullptr) return slice(input, None{}, None{}, -1);
  std::vector<Value> items = items_of(input);
  std::reverse(items.begin(), items.end());
  return List{.items = items, .tuple = false, .lazy = true};
}

Value length(Run&, const Value& input, const Arguments&) {
  const std::optional<int64_t> known = length_of(input);
  if (!known) fail(fmt::format("object of type '{}' has no len()", type_name(input)));
  return *known;
}

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> all = {
      {"abs", [](Run&, const Value& v, const Arguments&) { return compare(v, Value(0)) < 0 ? negated(v) : binary("+", v, Value(0)); }},
      {"attr", [](Run&, const Value& v, const Arguments& a) { return attribute(v, to_str(a.get(0, "name", ""))); }},
      {"capitalize", [](Run&, const Value& v, const Arguments&) { return by_method(v, "capitalize"); }},
      {"count", length},
      {"d", or_default},
      {"default", or_default},
      {"dictsort", dictsort},
      {"e", escaped},
      {"escape", escaped},
      {"first",
       [](Run&, const Value& v, const Arguments&) {
         const std::vector<Value> items = items_of(v);
         return items.empty() ? Value(Undefined{"No first item, sequence was empty."}) : items.front();
       }},
      {"float", to_float},
      {"indent", indented},
      {"int", to_int},
      {"items",
       [](Run&, const Value& v, const Arguments&) {
         if (v.is_undefined()) return Value(List{});
         if (v.get<Dict>() == nullptr) fail("Can only get item pairs from a mapping.");
         return call(*method(v, "items"), {});
       }},
      {"join", joined},
      {"last",
       [](Run&, const Value& v, const Arguments&) {
         const std::vector<Value> items = items_of(v);
         return items.empty() ? Value(Undefined{"No last item, sequence was empty."}) : items.back();
       }},
      {"length", length},
      {"list", [](Run&, const Value& v, const Arguments&) { return Value(List{items_of(v)}); }},
      {"lower", [](Run&, const Value& v, const Arguments&) { return by_method(v, "lower"); }},
      {"map", map},
      {"max", [](Run&, const Value& v, const Arguments& a) { return extreme(v, a, 1); }},
      {"min", [](Run&, const Value& v, const Arguments& a) { return extreme(v, a, -1); }},
      {"reject", [](Run& r, const Value& v, const Arguments& a) { return chosen(r, v, a, false, false); }},
      {"rejectattr", [](Run& r, const Value& v, const Arguments& a) { return chosen(r, v, a, true, false); }},
      {"replace", [](Run&, const Value& v, const Arguments& a) { return by_method(v, "replace", a); }},
      {"reverse", reversed},
      {"round", rounded},
      {"safe", [](Run&, const Value& v, const Arguments&) { return v; }},
      {"select", [](Run& r, const Value& v, const Arguments& a) { return chosen(r, v, a, false, true); }},
      {"selectattr", [](Run& r, const Value& v, const Arguments& a) { return chosen(r, v, a, true, true); }},
      {"sort", sorted},
      {"string", [](Run&, const Value& v, const Arguments&) { return Value(to_str(v)); }},
      {"sum", sum},
      {"title", [](Run&, const Value& v, const Arguments&) { return by_method(v, "title"); }},
      {"tojson", tojson},
      {"trim", [](Run&, const Value& v, const Arguments& a) { return by_method(v, "strip", a); }},
      {"unique", unique},
      {"upper", [](Run&, const Value& v, const Arguments&) { return by_method(v, "upper"); }},
  };
  return all;
}

}  // namespace

bool has_filter(const std::string& name) { return filters().contains(name); }

Value filter(Run& run, const std::string& name, const Value& input, const Arguments& arguments) {
  const auto found = filters().find(name);
  if (found == filters().end()) fail(fmt::format("No filter named '{}'.", name));
  return found->second(run, input, arguments);
}

}  // namespace lockstep::chat::jinja
