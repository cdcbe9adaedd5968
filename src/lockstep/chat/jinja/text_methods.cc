// Methods of strings: Python's, which count characters and not bytes.
#include "lockstep/chat/jinja/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/chat/jinja/operations.h"
#include "lockstep/chat/jinja/strings.h"
#include "lockstep/text/normalize.h"
#include "lockstep/text/unicode.h"
#include "lockstep/text/utf8.h"

namespace lockstep::chat::jinja {

namespace {

constexpr int64_t kWidest = int64_t{1} << 20;  // characters that a text is filled up to

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
      words.emplace_back(text);
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

// At runs of space, from the end.
List last_words_of(std::string_view text, int64_t most) {
  List words;
  for (text = right_stripped(text); !text.empty(); text = right_stripped(text)) {
    if (most >= 0 && static_cast<int64_t>(words.items.size()) == most) {
      words.items.emplace_back(text);
      break;
    }
    const std::vector<std::string_view> all = characters_of(text);
    const auto space = std::find_if(all.rbegin(), all.rend(), is_space);
    const size_t begin =
        space == all.rend() ? 0 : static_cast<size_t>(space->data() - text.data()) + space->size();
    words.items.emplace_back(text.substr(begin));
    text = text.substr(0, begin);
  }
  std::reverse(words.items.begin(), words.items.end());
  return words;
}

Value rsplit(const Value& self, const Arguments& a) {
  const Value* separator = a.find(0, "sep");
  const int64_t most = int_of(a.get(1, "maxsplit", -1));
  if (separator == nullptr || separator->is_none()) return last_words_of(str_of(self), most);
  const std::string& by = str_of(*separator);
  if (by.empty()) fail("empty separator");
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
  const LineEnds ends = is_true(a.get(0, "keepends", false)) ? LineEnds::kept : LineEnds::dropped;
  List lines;
  for (const std::string_view line : lines_of(str_of(self), ends)) lines.items.emplace_back(line);
  return lines;
}

// What start and end, the arguments behind the first, leave of a text; nothing where they leave not even an
// empty one.
struct Window {
  std::string_view text;
  int64_t before = 0;  // characters
};
std::optional<Window> window_of(const Value& self, const Arguments& a) {
  const std::string& text = str_of(self);
  if (a.positional.size() < 2) return Window{text};
  const std::vector<std::string_view> all = characters_of(text);
  const Places places = places_of(static_cast<int64_t>(all.size()), a);
  if (places.first > places.last) return std::nullopt;
  const auto byte = [&](int64_t place) {
    return place < static_cast<int64_t>(all.size())
               ? static_cast<size_t>(all[static_cast<size_t>(place)].data() - text.data())
               : text.size();
  };
  return Window{std::string_view(text).substr(byte(places.first), byte(places.last) - byte(places.first)),
                places.first};
}

// startswith, endswith: of one text, or any of several.
Value touches(const Value& self, const Arguments& a, bool at_end) {
  if (a.positional.empty()) fail("an argument is missing");
  const std::optional<Window> window = window_of(self, a);
  const auto holds = [&](const Value& one) {
    const std::string& part = str_of(one);
    return window && (at_end ? window->text.ends_with(part) : window->text.starts_with(part));
  };
  const List* several = a.positional[0].get<List>();
  if (several == nullptr) return holds(a.positional[0]);
  if (!several->tuple) fail("startswith and endswith take a string or a tuple of strings, not a list");
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
      if (left != 0) grow(out, to), --left;
      grow(out, one);
    }
    if (left != 0) grow(out, to);
    return out;
  }
  size_t at = 0;
  for (size_t found; left != 0 && (found = text.find(from, at)) != std::string::npos; --left) {
    grow(out, std::string_view(text).substr(at, found - at));
    grow(out, to);
    at = found + from.size();
  }
  return out.append(text, at);
}

int64_t count_of(std::string_view text) { return static_cast<int64_t>(characters_of(text).size()); }

bool is_letter(uint32_t code) { return (text::Unicode::table().bits(code) & text::kLetter) != 0; }
int category(uint32_t code) { return text::Unicode::table().bits(code) & text::kCategoryMask; }
uint32_t code_of(std::string_view character) {
  const char* at = character.data();
  return text::next_char(at);
}

std::string upper(std::string_view text) {
  std::string out;
  for (const std::string_view one : characters_of(text)) {
    const int is = category(code_of(one));
    const bool stays = is == text::kLo || is == text::kLu || is == text::kNd ||
                       (is >= text::kPc && is <= text::kSk) || is >= text::kZs;
    if (one.size() > 1 && !stays) fail("large letters outside ASCII are not supported in templates");
    out += one.size() == 1 && one[0] >= 'a' && one[0] <= 'z' ? std::string(1, static_cast<char>(one[0] - 32))
                                                             : std::string(one);
  }
  return out;
}

// Whether a sigma at `at` ends a word: a letter stands before it and none behind it, apart from marks and the
// like.
bool ends_word(const std::vector<std::string_view>& all, size_t at) {
  const auto letter = [&](size_t from, int step) {
    for (size_t i = from + static_cast<size_t>(step); i < all.size(); i += static_cast<size_t>(step)) {
      const int is = category(code_of(all[i]));
      if (is == text::kLu || is == text::kLl || is == text::kLt) return true;
      const bool passed = is == text::kMn || is == text::kMe || is == text::kCf || is == text::kLm ||
                          is == text::kSk || all[i] == "'" || all[i] == "." || all[i] == ":" ||
                          all[i] == "\u00b7" || all[i] == "\u2018" || all[i] == "\u2019";
      if (!passed) return false;
    }
    return false;
  };
  return letter(at, -1) && !letter(at, 1);
}

std::string lower(const std::string& text) {
  constexpr std::string_view kSigma = "\u03a3", kFinalSigma = "\u03c2";
  if (text.find(kSigma) == std::string::npos) return text::lowercase(text);
  const std::vector<std::string_view> all = characters_of(text);
  std::string out;
  for (size_t i = 0; i < all.size(); ++i)
    out += all[i] == kSigma && ends_word(all, i) ? std::string(kFinalSigma) : text::lowercase(all[i]);
  return out;
}

Value capitalize(const Value& self, const Arguments&) {
  const std::string& text = str_of(self);
  if (text.empty()) return text;
  const std::string_view first = characters_of(text)[0];
  // The rest as it is behind the first, whose own small letters go.
  return upper(first) + lower(text).substr(text::lowercase(first).size());
}

Value title(const Value& self, const Arguments&) {
  std::string out = lower(str_of(self));
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
    if (!std::exchange(first, false)) grow(out, str_of(self));
    grow(out, str_of(one));
  }
  return out;
}

Value partition(const Value& self, const Arguments& a) {
  const std::string_view text = str_of(self);
  const std::string& by = first_text(a);
  if (by.empty()) fail("empty separator");
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

// find, rfind: how many characters stand before a part; -1: it is not there.
template <bool last>
Value found(const Value& self, const Arguments& a) {
  const std::string& part = first_text(a);
  const std::optional<Window> window = window_of(self, a);
  const size_t at = !window ? std::string::npos : last ? window->text.rfind(part) : window->text.find(part);
  return at == std::string::npos ? int64_t{-1} : window->before + count_of(window->text.substr(0, at));
}
// index, rindex: the same of what must be there.
template <bool last>
Value index_of(const Value& self, const Arguments& a) {
  const Value at = found<last>(self, a);
  if (int_of(at) < 0) fail("substring not found");
  return at;
}

Value count(const Value& self, const Arguments& a) {
  const std::string& part = first_text(a);
  const std::optional<Window> window = window_of(self, a);
  if (!window) return 0;
  if (part.empty()) return count_of(window->text) + 1;
  int64_t count = 0;
  for (size_t at = window->text.find(part); at != std::string::npos;
       at = window->text.find(part, at + part.size()))
    ++count;
  return count;
}

// ljust, rjust, center: filled up to a width in characters. Of an odd number to fill, center() puts the one
// more where Python does.
enum class Side { left, right, both };
template <Side side>
Value justified(const Value& self, const Arguments& a) {
  if (a.positional.empty()) fail("an argument is missing");
  const int64_t size = length_of(self).value_or(0), width = std::max(size, int_of(a.positional[0]));
  if (width > kWidest && width > size) fail("a text would be filled up too far");
  const Value given = a.get(1, "fillchar", " ");
  const std::string& fill = str_of(given);
  if (count_of(fill) != 1) fail("The fill character must be exactly one character long");
  const int64_t all = width - size;
  const int64_t before = side == Side::left ? 0 : side == Side::right ? all : all / 2 + (all & width & 1);
  std::string out;
  for (int64_t k = 0; k < before; ++k) out += fill;
  out += str_of(self);
  for (int64_t k = before; k < all; ++k) out += fill;
  return out;
}

Value zfill(const Value& self, const Arguments& a) {
  if (a.positional.empty()) fail("an argument is missing");
  const std::string& text = str_of(self);
  const int64_t size = length_of(self).value_or(0), width = std::max(size, int_of(a.positional[0]));
  if (width > kWidest && width > size) fail("a text would be filled up too far");
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  return text.substr(0, sign) + std::string(static_cast<size_t>(width - size), '0') + text.substr(sign);
}

bool each(const Value& self, bool (*holds)(uint32_t)) {
  const std::vector<std::string_view> all = characters_of(str_of(self));
  return !all.empty() &&
         std::all_of(all.begin(), all.end(), [&](std::string_view one) { return holds(code_of(one)); });
}

// isupper, islower: some letters have a case, and all of those have this one.
Value in_case(const Value& self, int wanted) {
  bool some = false;
  for (const std::string_view one : characters_of(str_of(self))) {
    const int is = category(code_of(one));
    if (is != text::kLu && is != text::kLl && is != text::kLt) continue;
    if (is != wanted) return false;
    some = true;
  }
  return some;
}

constexpr MethodRow kTextMethods[] = {
    {"strip", 1, cut<stripped>},
    {"lstrip", 1, cut<left_stripped>},
    {"rstrip", 1, cut<right_stripped>},
    {"split", 2, split, "sep, maxsplit"},
    {"rsplit", 2, rsplit, "sep, maxsplit"},
    {"splitlines", 1, splitlines, "keepends"},
    {"startswith", 3, [](const Value& s, const Arguments& a) { return touches(s, a, false); }},
    {"endswith", 3, [](const Value& s, const Arguments& a) { return touches(s, a, true); }},
    {"replace", 3, replace, "count"},
    {"upper", 0, [](const Value& s, const Arguments&) { return Value(upper(str_of(s))); }},
    {"lower", 0, [](const Value& s, const Arguments&) { return Value(lower(str_of(s))); }},
    {"capitalize", 0, capitalize},
    {"title", 0, title},
    {"format", SIZE_MAX, format, "*"},
    {"join", 1, join},
    {"partition", 1, partition},
    {"rpartition", 1, rpartition},
    {"find", 3, found<false>},
    {"rfind", 3, found<true>},
    {"index", 3, index_of<false>},
    {"rindex", 3, index_of<true>},
    {"count", 3, count},
    {"center", 2, justified<Side::both>},
    {"ljust", 2, justified<Side::left>},
    {"rjust", 2, justified<Side::right>},
    {"zfill", 1, zfill},
    {"removeprefix", 1,
     [](const Value& s, const Arguments& a) {
       const std::string &text = str_of(s), &part = first_text(a);
       return Value(text.starts_with(part) ? text.substr(part.size()) : text);
     }},
    {"removesuffix", 1,
     [](const Value& s, const Arguments& a) {
       const std::string &text = str_of(s), &part = first_text(a);
       return Value(text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text);
     }},
    {"isupper", 0, [](const Value& s, const Arguments&) { return in_case(s, text::kLu); }},
    {"islower", 0, [](const Value& s, const Arguments&) { return in_case(s, text::kLl); }},
    {"isalnum", 0,
     [](const Value& s, const Arguments&) {
       return Value(each(s, [](uint32_t code) {
         return is_letter(code) || (text::Unicode::table().bits(code) & text::kNumber) != 0;
       }));
     }},
    {"isdigit", 0,
     [](const Value& s, const Arguments&) {
       return Value(each(s, [](uint32_t code) { return category(code) == text::kNd; }));
     }},
    {"isalpha", 0, [](const Value& s, const Arguments&) { return Value(each(s, is_letter)); }},
    {"isspace", 0,
     [](const Value& s, const Arguments&) {
       return Value(!str_of(s).empty() && stripped(str_of(s)).empty());
     }},
};

}  // namespace

std::span<const MethodRow> text_methods() { return kTextMethods; }

}  // namespace lockstep::chat::jinja
