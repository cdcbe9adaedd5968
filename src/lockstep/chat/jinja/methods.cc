// Methods of strings, lists and dictionaries. Those that would change one are refused, as in the sandbox that
// Hugging Face renders in.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/chat/jinja/operations.h"
#include "lockstep/chat/jinja/strings.h"
#include "lockstep/text/normalize.h"
#include "lockstep/text/unicode.h"
#include "lockstep/text/utf8.h"

namespace lockstep::chat::jinja {

namespace {

constexpr int64_t kWidest = int64_t{1} << 20;  // characters that a text is filled up to

using Call = Value (*)(const Value& self, const Arguments& arguments);

struct Row {
  std::string_view name;
  Call call;
};

template <size_t N>
std::optional<Value> bound(const Row (&rows)[N], const Value& self, std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name)
      return Value(
          Function{std::string(name), [self, call = row.call](const Arguments& a) { return call(self, a); }});
  }
  return std::nullopt;
}

const std::string& first_text(const Arguments& a) {
  if (a.positional.empty()) fail("an argument is missing");
  return str_of(a.positional[0]);
}

template <std::string_view (*Cut)(std::string_view, const std::string_view*)>
Value cut(const Value& self, const Arguments& a) {
  const Value* given = a.find(0, "chars");
  if (given == nullptr || given->is_none()) return Value(Cut(str_of(self), nullptr));
  const std::string_view characters = str_of(*given);
  return Value(Cut(str_of(self), &characters));
}

// At runs of space, as split() without a separator.
std::vector<Value> words_of(std::string_view text, int64_t most) {
  std::vector<Value> words;
  for (text = left_stripped(text); !text.empty(); text = left_stripped(text)) {
    if (most >= 0 && static_cast<int64_t>(words.size()) == most) {
      words.emplace_back(right_stripped(text));
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const auto size = static_cast<size_t>(text::length_of_char(text[end]));
      if (is_space(text.substr(end, size))) break;
      end += size;
    }
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end, text.size()));
  }
  return words;
}

Value split(const Value& self, const Arguments& a) {
  const Value* separator = a.find(0, "sep");
  const int64_t most = int_of(a.get(1, "maxsplit", -1));
  if (separator == nullptr || separator->is_none()) return List{words_of(str_of(self), most)};
  const std::string& by = str_of(*separator);
  if (by.empty()) fail("empty separator");
  List parts;
  std::string_view rest = str_of(self);
  while (most < 0 || static_cast<int64_t>(parts.items.size()) < most) {
    const size_t at = rest.find(by);
    if (at == std::string_view::npos) break;
    parts.items.emplace_back(rest.substr(0, at));
    rest.remove_prefix(at + by.size());
  }
  parts.items.emplace_back(rest);
  return parts;
}

Value rsplit(const Value& self, const Arguments& a) {
  const Value* separator = a.find(0, "sep");
  if (separator == nullptr || separator->is_none()) fail("rsplit() needs a separator here");
  const std::string& by = str_of(*separator);
  if (by.empty()) fail("empty separator");
  const int64_t most = int_of(a.get(1, "maxsplit", -1));
  List parts;
  std::string_view rest = str_of(self);
  while (most < 0 || static_cast<int64_t>(parts.items.size()) < most) {
    const size_t at = rest.rfind(by);
    if (at == std::string_view::npos) break;
    parts.items.emplace_back(rest.substr(at + by.size()));
    rest = rest.substr(0, at);
  }
  parts.items.emplace_back(rest);
  std::reverse(parts.items.begin(), parts.items.end());
  return parts;
}

Value splitlines(const Value& self, const Arguments& a) {
  const bool keeps = is_true(a.get(0, "keepends", false));
  const std::string_view text = str_of(self);
  List lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find_first_of("\r\n", at);
    size_t next = end == std::string_view::npos ? text.size() : end + 1;
    if (end != std::string_view::npos && text[end] == '\r' && next < text.size() && text[next] == '\n')
      ++next;
    const size_t stop = end == std::string_view::npos ? text.size() : end;
    lines.items.emplace_back(text.substr(at, (keeps ? next : stop) - at));
    at = next;
  }
  return lines;
}

// startswith, endswith: of one text, or any of several.
Value touches(const Value& self, const Arguments& a, bool at_end) {
  const std::string_view text = str_of(self);
  const auto holds = [&](const Value& one) {
    const std::string& part = str_of(one);
    return at_end ? text.ends_with(part) : text.starts_with(part);
  };
  if (a.positional.empty()) fail("an argument is missing");
  const List* several = a.positional[0].get<List>();
  if (several == nullptr) return holds(a.positional[0]);
  return std::any_of(several->items.begin(), several->items.end(), holds);
}

Value replace(const Value& self, const Arguments& a) {
  const std::string& text = str_of(self);
  const Value old_value = a.get(0, "old", Value()), new_value = a.get(1, "new", Value());
  const std::string &from = str_of(old_value), &to = str_of(new_value);
  int64_t left = int_of(a.get(2, "count", -1));
  std::string out;
  if (from.empty()) {
    for (const std::string_view one : characters_of(text)) {
      if (left != 0) out += to, --left;
      out += one;
    }
    return left != 0 ? out + to : out;
  }
  size_t at = 0;
  for (size_t found; left != 0 && (found = text.find(from, at)) != std::string::npos; --left) {
    out.append(text, at, found - at);
    out += to;
    at = found + from.size();
  }
  return out.append(text, at);
}

int64_t characters_before(std::string_view text, size_t byte) {
  return byte == std::string_view::npos ? -1 : length_of(Value(text.substr(0, byte))).value_or(0);
}

std::string upper(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c & 0x80) != 0) fail("upper case of characters outside ASCII is not supported in templates");
    out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  }
  return out;
}

Value capitalize(const Value& self, const Arguments&) {
  const std::string& text = str_of(self);
  return text.empty() ? text : upper(text.substr(0, 1)) + text::lowercase(text.substr(1));
}

Value title(const Value& self, const Arguments&) {
  std::string out = text::lowercase(str_of(self));
  bool in_word = false;
  for (char& c : out) {
    const bool letter = (c >= 'a' && c <= 'z') || (c & 0x80) != 0;
    if ((c & 0x80) != 0) fail("title case of characters outside ASCII is not supported in templates");
    if (letter && !in_word) c = static_cast<char>(c - 32);
    in_word = letter;
  }
  return out;
}

// "{} and {name}".format(...): places and names, without anything behind a colon.
Value format(const Value& self, const Arguments& a) {
  const std::string_view text = str_of(self);
  std::string out;
  int64_t next = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if ((text[at] == '{' || text[at] == '}') && at + 1 < text.size() && text[at + 1] == text[at]) {
      out += text[at++];
    } else if (text[at] == '{') {
      const size_t end = text.find('}', at);
      if (end == std::string_view::npos) fail("expected '}' before end of string");
      const std::string name(text.substr(at + 1, end - at - 1));
      if (name.find_first_of(":!.[{") != std::string::npos)
        fail(fmt::format("format() knows places and names here, not {{{}}}", name));
      const bool place = name.empty() || name.find_first_not_of("0123456789") == std::string::npos;
      if (name.size() > 3 && place) fail("Replacement index out of range");
      const Value* found = place ? a.find(static_cast<size_t>(name.empty() ? next++ : std::stoll(name)), "")
                                 : a.find(SIZE_MAX, name);
      if (found == nullptr) fail(fmt::format("format() was not given {{{}}}", name));
      out += to_str(*found);
      at = end;
    } else if (text[at] == '}') {
      fail("Single '}' encountered in format string");
    } else {
      out += text[at];
    }
  }
  return out;
}

Value join(const Value& self, const Arguments& a) {
  std::string out;
  bool first = true;
  for (const Value& one : items_of(a.get(0, "iterable", Value()))) {
    if (!std::exchange(first, false)) out += str_of(self);
    out += str_of(one);
  }
  return out;
}

Value partition(const Value& self, const Arguments& a) {
  const std::string_view text = str_of(self);
  const std::string& by = first_text(a);
  const size_t at = text.find(by);
  if (at == std::string_view::npos) return List{{text, "", ""}, true};
  return List{{text.substr(0, at), by, text.substr(at + by.size())}, true};
}

Value rpartition(const Value& self, const Arguments& a) {
  const std::string_view text = str_of(self);
  const std::string& by = first_text(a);
  if (by.empty()) fail("empty separator");
  const size_t at = text.rfind(by);
  if (at == std::string_view::npos) return List{{"", "", text}, true};
  return List{{text.substr(0, at), by, text.substr(at + by.size())}, true};
}

// index, rindex: as find and rfind, of what must be there.
Value found(const Value& self, const Arguments& a, bool last) {
  const std::string &text = str_of(self), &part = first_text(a);
  const size_t at = last ? text.rfind(part) : text.find(part);
  if (at == std::string::npos) fail("substring not found");
  return characters_before(text, at);
}

// ljust, rjust, center: filled up to a width in characters. Of an odd number to fill, center() puts the one
// more where Python does.
enum class Side { left, right, both };
template <Side side>
Value justified(const Value& self, const Arguments& a) {
  if (a.positional.empty()) fail("an argument is missing");
  const int64_t size = length_of(self).value_or(0), width = int_of(a.positional[0]);
  if (width > kWidest) fail("a text would be filled up too far");
  const Value fill = a.get(1, "fillchar", " ");
  if (length_of(fill) != 1) fail("The fill character must be exactly one character long");
  const int64_t all = std::max<int64_t>(0, width - size);
  const int64_t before = side == Side::left ? 0 : side == Side::right ? all : all / 2 + (all & width & 1);
  std::string out;
  for (int64_t k = 0; k < before; ++k) out += str_of(fill);
  out += str_of(self);
  for (int64_t k = before; k < all; ++k) out += str_of(fill);
  return out;
}

Value zfill(const Value& self, const Arguments& a) {
  const std::string& text = str_of(self);
  const int64_t size = length_of(self).value_or(0),
                width = a.positional.empty() ? 0 : int_of(a.positional[0]);
  if (width > kWidest) fail("a text would be filled up too far");
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  return text.substr(0, sign) + std::string(static_cast<size_t>(std::max<int64_t>(0, width - size)), '0') +
         text.substr(sign);
}

bool each(const Value& self, bool (*holds)(uint32_t)) {
  const std::vector<std::string_view> all = characters_of(str_of(self));
  return !all.empty() && std::all_of(all.begin(), all.end(), [&](std::string_view one) {
    const char* at = one.data();
    return holds(text::next_char(at));
  });
}
bool is_letter(uint32_t code) { return (text::Unicode::table().bits(code) & text::kLetter) != 0; }
bool is_decimal(uint32_t code) {
  return (text::Unicode::table().bits(code) & text::kCategoryMask) == text::kNd;
}

int category(uint32_t code) { return text::Unicode::table().bits(code) & text::kCategoryMask; }
// isupper, islower: some letters have a case, and all of those have this one.
Value in_case(const Value& self, int wanted) {
  bool some = false;
  for (const std::string_view one : characters_of(str_of(self))) {
    const char* at = one.data();
    const int is = category(text::next_char(at));
    if (is != text::kLu && is != text::kLl && is != text::kLt) continue;
    if (is != wanted) return false;
    some = true;
  }
  return some;
}

const Row kTextMethods[] = {
    {"strip", cut<stripped>},
    {"lstrip", cut<left_stripped>},
    {"rstrip", cut<right_stripped>},
    {"split", split},
    {"rsplit", rsplit},
    {"splitlines", splitlines},
    {"startswith", [](const Value& s, const Arguments& a) { return touches(s, a, false); }},
    {"endswith", [](const Value& s, const Arguments& a) { return touches(s, a, true); }},
    {"replace", replace},
    {"upper", [](const Value& s, const Arguments&) { return Value(upper(str_of(s))); }},
    {"lower", [](const Value& s, const Arguments&) { return Value(text::lowercase(str_of(s))); }},
    {"capitalize", capitalize},
    {"title", title},
    {"format", format},
    {"join", join},
    {"partition", partition},
    {"rpartition", rpartition},
    {"index", [](const Value& s, const Arguments& a) { return found(s, a, false); }},
    {"rindex", [](const Value& s, const Arguments& a) { return found(s, a, true); }},
    {"center", justified<Side::both>},
    {"ljust", justified<Side::left>},
    {"rjust", justified<Side::right>},
    {"zfill", zfill},
    {"isupper", [](const Value& s, const Arguments&) { return in_case(s, text::kLu); }},
    {"islower", [](const Value& s, const Arguments&) { return in_case(s, text::kLl); }},
    {"isalnum",
     [](const Value& s, const Arguments&) {
       return Value(each(s, [](uint32_t code) { return is_letter(code) || is_decimal(code); }));
     }},
    {"find",
     [](const Value& s, const Arguments& a) {
       return Value(characters_before(str_of(s), str_of(s).find(first_text(a))));
     }},
    {"rfind",
     [](const Value& s, const Arguments& a) {
       return Value(characters_before(str_of(s), str_of(s).rfind(first_text(a))));
     }},
    {"count",
     [](const Value& s, const Arguments& a) {
       int64_t count = 0;
       const std::string &text = str_of(s), &part = first_text(a);
       if (part.empty()) return Value(length_of(s).value_or(0) + 1);
       for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
         ++count;
       return Value(count);
     }},
    {"removeprefix",
     [](const Value& s, const Arguments& a) {
       const std::string &text = str_of(s), &part = first_text(a);
       return Value(text.starts_with(part) ? text.substr(part.size()) : text);
     }},
    {"removesuffix",
     [](const Value& s, const Arguments& a) {
       const std::string &text = str_of(s), &part = first_text(a);
       return Value(text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text);
     }},
    {"isdigit", [](const Value& s, const Arguments&) { return Value(each(s, is_decimal)); }},
    {"isalpha", [](const Value& s, const Arguments&) { return Value(each(s, is_letter)); }},
    {"isspace", [](const Value& s,
                   const Arguments&) { return Value(!str_of(s).empty() && stripped(str_of(s)).empty()); }},
};

Value pairs_of(const Dict& dict) {
  List pairs;
  for (const auto& [key, value] : dict.items) pairs.items.emplace_back(List{{key, value}, true});
  pairs.view = "dict_items";
  return pairs;
}

const Row kDictMethods[] = {
    {"items", [](const Value& s, const Arguments&) { return pairs_of(*s.get<Dict>()); }},
    {"keys",
     [](const Value& s, const Arguments&) { return Value(List{.items = items_of(s), .view = "dict_keys"}); }},
    {"values",
     [](const Value& s, const Arguments&) {
       List values;
       for (const auto& [key, value] : s.get<Dict>()->items) values.items.push_back(value);
       values.view = "dict_values";
       return Value(values);
     }},
    {"get",
     [](const Value& s, const Arguments& a) {
       if (a.positional.empty()) fail("get expected at least 1 argument, got 0");
       const Value* found = s.get<Dict>()->find(a.positional[0]);
       return found != nullptr ? *found : a.get(1, "default", None{});
     }},
    {"copy", [](const Value& s, const Arguments&) { return s; }},
};

const Row kListMethods[] = {
    {"index",
     [](const Value& s, const Arguments& a) {
       const std::vector<Value>& items = s.get<List>()->items;
       if (a.positional.empty()) fail("an argument is missing");
       for (size_t i = 0; i < items.size(); ++i) {
         if (is_equal(items[i], a.positional[0])) return Value(i);
       }
       fail(fmt::format("{} is not in list", to_repr(a.positional[0])));
     }},
    {"count",
     [](const Value& s, const Arguments& a) {
       const std::vector<Value>& items = s.get<List>()->items;
       const Value wanted = a.get(0, "value", Value());
       return Value(static_cast<int64_t>(std::count_if(
           items.begin(), items.end(), [&](const Value& one) { return is_equal(one, wanted); })));
     }},
    {"copy", [](const Value& s, const Arguments&) { return s; }},
};

constexpr std::string_view kChanging[] = {"append", "extend", "insert", "pop",        "remove", "reverse",
                                          "sort",   "clear",  "update", "setdefault", "popitem"};

}  // namespace

std::optional<Value> method(const Value& of, std::string_view name) {
  if (of.get<std::string>() != nullptr) return bound(kTextMethods, of, name);
  const bool dict = of.get<Dict>() != nullptr;
  if (!dict && (of.get<List>() == nullptr || of.get<List>()->view != nullptr)) return std::nullopt;
  std::optional<Value> found = dict ? bound(kDictMethods, of, name) : bound(kListMethods, of, name);
  if (found || (dict && of.get<Dict>()->find(Value(name)) != nullptr)) return found;
  if (std::find(std::begin(kChanging), std::end(kChanging), name) == std::end(kChanging)) return found;
  return Value(Function{std::string(name), [name = std::string(name)](const Arguments&) -> Value {
                          fail(fmt::format("{}() would change a value; templates may not", name));
                        }});
}

}  // namespace lockstep::chat::jinja
