// Jinja's filters, as far as chat templates use them; tojson is Hugging Face's, which escapes nothing for
// HTML.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/chat/jinja/operations.h"
#include "lockstep/chat/jinja/strings.h"
#include "lockstep/text/unicode.h"
#include "lockstep/text/utf8.h"

namespace lockstep::chat::jinja {

namespace {

using Filter = Value (*)(Run& run, const Value& input, const Arguments& arguments);

Value by_method(const Value& input, std::string_view name, const Arguments& arguments = {}) {
  const Value text = to_str(input);
  return call(*method(text, name), arguments);
}

// "a.b.0": an attribute of an attribute; `otherwise` stands for what is not there, unless it is none.
Value path_of(const Value& value, const Value& path, const Value& otherwise = None{}) {
  const auto present = [&](Value found) {
    return found.is_undefined() && !otherwise.is_none() ? otherwise : found;
  };
  if (path.get<int64_t>() != nullptr) return present(item(value, path));
  Value found = value;
  std::string_view rest = str_of(path);
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool index = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    const Value key = index ? Value(static_cast<int64_t>(std::stoll(std::string(part)))) : Value(part);
    found = present(item(found, key));
    if (dot == std::string_view::npos) return found;
    rest.remove_prefix(dot + 1);
  }
}

// By what an item is sorted or told apart: itself or its attribute, in small letters unless it is to be
// exact.
Value key_of(const Value& one, const Value& path, bool exact) {
  Value value = path.is_none() ? one : path_of(one, path);
  return !exact && value.get<std::string>() != nullptr ? by_method(value, "lower") : value;
}

Value sorted(Run&, const Value& input, const Arguments& a) {
  std::vector<Value> items = items_of(input);
  const bool reverse = is_true(a.get(0, "reverse", false)),
             exact = is_true(a.get(1, "case_sensitive", false));
  const Value path = a.get(2, "attribute", None{});
  const auto key = [&](const Value& one) {
    const std::string* paths = path.get<std::string>();
    if (paths == nullptr) return key_of(one, path, exact);
    List keys;  // "a,b": by one, then by the other; a list even of one, which compares where its item would
                // not
    for (std::string_view rest = *paths;;) {
      const size_t comma = rest.find(',');
      keys.items.push_back(key_of(one, Value(rest.substr(0, comma)), exact));
      if (comma == std::string_view::npos) return Value(keys);
      rest.remove_prefix(comma + 1);
    }
  };
  std::stable_sort(items.begin(), items.end(), [&](const Value& x, const Value& y) {
    return reverse ? compare(key(y), key(x)) < 0 : compare(key(x), key(y)) < 0;
  });
  return List{items};
}

Value dictsort(Run&, const Value& input, const Arguments& a) {
  const Dict* dict = input.get<Dict>();
  if (dict == nullptr) fail("dictsort takes a dictionary");
  const bool exact = is_true(a.get(0, "case_sensitive", false)),
             reverse = is_true(a.get(2, "reverse", false));
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

// An item at a time from `start`'s items, of which `next` makes one; nothing happens before somebody asks.
using Next = std::function<std::optional<Value>()>;
Value lazily(std::function<Next()> start) {
  return Generator{"generator", [start = std::move(start), next = Next()]() mutable -> std::optional<Value> {
                     if (!next) next = start();
                     return next();
                   }};
}

// Those of Jinja's filters that choose take anything false as empty, none among it.
Next walk_or_none(const Value& input) {
  return is_true(input) ? walk(input) : Next([] { return std::nullopt; });
}

Value map(Run& run, const Value& input, const Arguments& a) {
  return lazily([&run, input, a]() -> Next {
    if (!is_true(input)) return walk_or_none(input);
    Arguments rest = a;
    if (const Value* path = a.find(SIZE_MAX, "attribute"); path != nullptr && a.positional.empty()) {
      for (const auto& [name, value] : a.named) {
        if (name != "attribute" && name != "default")
          fail(fmt::format("Unexpected keyword argument '{}'", name));
      }
      return [items = walk(input), path = *path, otherwise = a.get(SIZE_MAX, "default", None{})]() {
        std::optional<Value> one = items();
        return one ? std::optional(path_of(*one, path, otherwise)) : std::nullopt;
      };
    }
    if (a.positional.empty()) fail("map requires a filter argument");
    rest.positional.erase(rest.positional.begin());
    return [&run, items = walk(input), name = to_str(a.positional[0]), rest]() {
      std::optional<Value> one = items();
      return one ? std::optional(filter(run, name, *one, rest)) : std::nullopt;
    };
  });
}

// select, reject, selectattr, rejectattr: those for which a test holds, or does not.
Value chosen(Run& run, const Value& input, const Arguments& a, bool by_attribute, bool wanted) {
  return lazily([&run, input, a, by_attribute, wanted]() -> Next {
    if (!is_true(input)) return walk_or_none(input);
    const size_t skipped = by_attribute ? 1 : 0;
    if (a.positional.size() < skipped) fail("Missing parameter for attribute name");
    const bool tested = a.positional.size() > skipped;
    Arguments rest{{}, a.named};
    if (tested)
      rest.positional.assign(a.positional.begin() + static_cast<ptrdiff_t>(skipped) + 1, a.positional.end());
    const std::string name = tested ? to_str(a.positional[skipped]) : "";
    const Value path = by_attribute ? a.positional[0] : Value(None{});
    return [&run, items = walk(input), name, rest, path, tested, wanted]() -> std::optional<Value> {
      while (std::optional<Value> one = items()) {
        const Value value = path.is_none() ? *one : path_of(*one, path);
        if ((tested ? test(run, name, value, rest) : is_true(value)) == wanted) return one;
      }
      return std::nullopt;
    };
  });
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

// As Jinja has it: a letter behind a space, a dash or a bracket that opens, and not behind every other
// character.
Value titled(Run&, const Value& input, const Arguments&) {
  const std::string text = to_str(input);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.size(), text.find_first_of("-([{< \t\n\r\f\v", at));
    if (end > at) out += to_str(by_method(text.substr(at, end - at), "capitalize"));
    if (end < text.size()) out += text[end];
    at = end + 1;
  }
  return out;
}

Value indented(Run&, const Value& input, const Arguments& a) {
  const Value width = a.get(0, "width", 4);
  const bool first = is_true(a.get(1, "first", false)), blank = is_true(a.get(2, "blank", false));
  const std::string space =
      width.get<std::string>() != nullptr
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
  if (input.get<int64_t>() != nullptr || input.get<bool>() != nullptr)
    return static_cast<double>(int_of(input));
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

// What Python cannot look up in a set or a dictionary.
void require_hashable(const Value& value) {
  const List* list = value.get<List>();
  if (value.get<Dict>() != nullptr || (list != nullptr && !list->tuple))
    fail(fmt::format("unhashable type: '{}'", type_name(value)));
  if (list != nullptr) std::for_each(list->items.begin(), list->items.end(), require_hashable);
}

Value unique(Run&, const Value& input, const Arguments& a) {
  const bool exact = is_true(a.get(0, "case_sensitive", false));
  const Value path = a.get(1, "attribute", None{});
  return lazily([=]() -> Next {
    return [=, items = walk(input), seen = std::vector<Value>()]() mutable -> std::optional<Value> {
      while (std::optional<Value> one = items()) {
        Value key = key_of(*one, path, exact);
        require_hashable(key);
        if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return is_equal(other, key); }))
          continue;
        seen.push_back(std::move(key));
        return one;
      }
      return std::nullopt;
    };
  });
}

// Runs of so many items, the last filled up where something is given to fill it with.
Value batch(Run&, const Value& input, const Arguments& a) {
  const Value count = a.get(0, "linecount", Undefined{"batch takes a number"}),
              fill = a.get(1, "fill_with", None{});
  return lazily([=]() -> Next {
    return [items = walk(input), size = static_cast<size_t>(std::max<int64_t>(1, int_of(count))),
            fill]() -> std::optional<Value> {
      List run;
      while (run.items.size() < size) {
        std::optional<Value> one = items();
        if (!one) break;
        run.items.push_back(std::move(*one));
      }
      if (run.items.empty()) return std::nullopt;
      if (!fill.is_none()) run.items.resize(size, fill);
      return run;
    };
  });
}

// So many lists of nearly as many items each, the first ones longer.
Value sliced(Run&, const Value& input, const Arguments& a) {
  const Value count = a.get(0, "slices", Undefined{"slice takes a number"}),
              fill = a.get(1, "fill_with", None{});
  return lazily([=]() -> Next {
    const std::vector<Value> items = items_of(input);
    const int64_t slices = int_of(count), all = static_cast<int64_t>(items.size());
    if (slices == 0) fail("integer division or modulo by zero");
    return [=, number = int64_t{0}]() mutable -> std::optional<Value> {
      if (number >= slices) return std::nullopt;
      const int64_t each = all / slices, longer = all % slices;
      const int64_t begin = number * each + std::min(number, longer),
                    end = begin + each + (number < longer ? 1 : 0);
      List one{.items = {items.begin() + begin, items.begin() + end}};
      if (!fill.is_none() && number >= longer) one.items.push_back(fill);
      ++number;
      return one;
    };
  });
}

// Lists of the items whose attribute is the same, each behind what they have in common, in its order.
Value grouped(Run&, const Value& input, const Arguments& a) {
  const Value path = a.get(0, "attribute", None{}), otherwise = a.get(1, "default", None{});
  const bool exact = is_true(a.get(2, "case_sensitive", false));
  const auto key = [&](const Value& one) {
    const Value found = path_of(one, path, otherwise);
    return !exact && found.get<std::string>() != nullptr ? by_method(found, "lower") : found;
  };
  std::vector<Value> items = items_of(input);
  std::stable_sort(items.begin(), items.end(),
                   [&](const Value& x, const Value& y) { return compare(key(x), key(y)) < 0; });
  List groups;
  for (size_t at = 0; at < items.size();) {
    const Value common = key(items[at]), shown = path_of(items[at], path, otherwise);
    List group;
    for (; at < items.size() && is_equal(key(items[at]), common); ++at) group.items.push_back(items[at]);
    groups.items.emplace_back(List{{shown, group}, true});
  }
  return groups;
}

Value extreme(const Value& input, const Arguments& a, int sign) {
  const bool exact = is_true(a.get(0, "case_sensitive", false));
  const Value path = a.get(1, "attribute", None{});
  const std::vector<Value> items = items_of(input);
  if (items.empty()) return Undefined{"No aggregated item, sequence was empty."};
  const Value* best = &items.front();
  for (const Value& one : items) {
    if (&one != best && compare(key_of(one, path, exact), key_of(*best, path, exact)) * sign > 0) best = &one;
  }
  return *best;
}

Value sum(Run&, const Value& input, const Arguments& a) {
  const Value path = a.get(0, "attribute", None{});
  Value total = a.get(1, "start", 0);
  for (const Value& one : items_of(input))
    total = binary("+", total, path.is_none() ? one : path_of(one, path));
  return total;
}

// Runs of letters, digits and underscores.
Value words_in(const std::string& text) {
  int64_t words = 0;
  bool inside = false;
  for (const std::string_view one : characters_of(text)) {
    const char* at = one.data();
    const uint32_t code = text::next_char(at);
    const bool before = std::exchange(
        inside, code == '_' || (text::Unicode::table().bits(code) & (text::kLetter | text::kNumber)) != 0);
    words += inside && !before ? 1 : 0;
  }
  return words;
}

Value escaped(Run&, const Value& input, const Arguments&) {
  std::string out;
  for (const char c : to_str(input)) {
    out += c == '&'    ? "&amp;"
           : c == '<'  ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '"'  ? "&#34;"
           : c == '\'' ? "&#39;"
                       : std::string(1, c);
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
  if (input.get<Generator>() != nullptr) return List{items};
  return Generator{"reversed", walk(List{items})};
}

Value length(Run&, const Value& input, const Arguments&) {
  const std::optional<int64_t> known = length_of(input);
  if (!known) fail(fmt::format("object of type '{}' has no len()", type_name(input)));
  return *known;
}

// "%s and %s" | format(a, b), or by names.
Value format(Run&, const Value& input, const Arguments& a) {
  if (!a.positional.empty() && !a.named.empty())
    fail("can't handle positional and keyword arguments at the same time");
  if (a.named.empty()) return formatted(to_str(input), List{.items = a.positional, .tuple = true});
  Dict names;
  for (const auto& [name, value] : a.named) names.set(Value(name), value);
  return formatted(to_str(input), names);
}

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> all = {
      {"abs",
       [](Run&, const Value& v, const Arguments&) {
         return compare(v, Value(0)) < 0 ? negated(v) : binary("+", v, Value(0));
       }},
      {"attr",
       [](Run&, const Value& v, const Arguments& a) { return attribute(v, to_str(a.get(0, "name", ""))); }},
      {"batch", batch},
      {"capitalize", [](Run&, const Value& v, const Arguments&) { return by_method(v, "capitalize"); }},
      {"count", length},
      {"d", or_default},
      {"default", or_default},
      {"dictsort", dictsort},
      {"e", escaped},
      {"escape", escaped},
      {"first",
       [](Run&, const Value& v, const Arguments&) {
         std::optional<Value> first = walk(v)();
         return first ? *first : Value(Undefined{"No first item, sequence was empty."});
       }},
      {"float", to_float},
      {"format", format},
      {"groupby", grouped},
      {"indent", indented},
      {"int", to_int},
      {"items",
       [](Run&, const Value& v, const Arguments&) {
         return lazily([v]() -> Next {
           if (v.is_undefined()) return walk(v);
           if (v.get<Dict>() == nullptr) fail("Can only get item pairs from a mapping.");
           return walk(call(*method(v, "items"), {}));
         });
       }},
      {"join", joined},
      {"last",
       [](Run&, const Value& v, const Arguments&) {
         if (v.get<Generator>() != nullptr) fail(fmt::format("'{}' object is not reversible", type_name(v)));
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
      {"slice", sliced},
      {"sort", sorted},
      {"string", [](Run&, const Value& v, const Arguments&) { return Value(to_str(v)); }},
      {"sum", sum},
      {"title", titled},
      {"tojson", tojson},
      {"trim", [](Run&, const Value& v, const Arguments& a) { return by_method(v, "strip", a); }},
      {"unique", unique},
      {"upper", [](Run&, const Value& v, const Arguments&) { return by_method(v, "upper"); }},
      {"wordcount", [](Run&, const Value& v, const Arguments&) { return words_in(to_str(v)); }},
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
