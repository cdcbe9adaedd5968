// Jinja's filters of one value, as far as chat templates use them; tojson is Hugging Face's, which escapes
// nothing for HTML.
#include "lockstep/chat/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "lockstep/chat/jinja/operations.h"
#include "lockstep/chat/jinja/strings.h"
#include "lockstep/text/unicode.h"
#include "lockstep/text/utf8.h"

namespace lockstep::chat::jinja {

namespace {

Value by_method(const Value& input, std::string_view name, const Arguments& arguments = {}) {
  const Value text = to_str(input);
  return call(*method(text, name), arguments);
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

// As Jinja has it: a large letter behind spaces, dashes and brackets that open, and not behind every other
// character.
Value titled(Run&, const Value& input, const Arguments&) {
  const std::string text = to_str(input);
  std::string out, word;
  const auto end_word = [&] {
    if (!word.empty()) out += to_str(by_method(word, "capitalize"));
    word.clear();
  };
  for (const std::string_view one : characters_of(text)) {
    if (is_space(one) || std::string_view("-([{<").find(one) != std::string_view::npos) {
      end_word();
      out += one;
    } else {
      word += one;
    }
  }
  end_word();
  return out;
}

Value indented(Run&, const Value& input, const Arguments& a) {
  const Value width = a.get(0, "width", 4);
  const bool first = is_true(a.get(1, "first", false)), blank = is_true(a.get(2, "blank", false));
  const std::string space =
      width.get<std::string>() != nullptr
          ? str_of(width)
          : std::string(static_cast<size_t>(std::clamp<int64_t>(int_of(width), 0, 1000)), ' ');
  const std::string text = str_of(input) + "\n";
  std::string out = first ? space : "";
  bool begins = true;
  for (const std::string_view line : lines_of(text, LineEnds::dropped)) {
    if (!std::exchange(begins, false)) {
      out += '\n';
      if (blank || !line.empty()) grow(out, space);
    }
    grow(out, line);
  }
  return out;
}

// Half to even, as Python's round(); of an integer, an integer.
Value rounded_to_even(const Value& input, double number, int64_t digits) {
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    const double near = std::isinf(unit) ? 0.0 : std::nearbyint(number / unit) * unit;
    return input.get<double>() != nullptr ? Value(near) : Value(static_cast<int64_t>(near));
  }
  if (input.get<double>() == nullptr) return int_of(input);
  return std::isfinite(number)
             ? Value(std::strtod(fmt::format("{:.{}f}", number, std::min<int64_t>(digits, 300)).c_str(),
                                 nullptr))
             : input;
}

Value rounded(Run&, const Value& input, const Arguments& a) {
  const int64_t digits = int_of(a.get(0, "precision", 0));
  const std::string how = to_str(a.get(1, "method", "common"));
  const double* real = input.get<double>();
  const double number = real != nullptr ? *real : static_cast<double>(int_of(input));
  if (how == "common") return rounded_to_even(input, number, digits);
  if (how != "ceil" && how != "floor") fail("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  return (how == "ceil" ? std::ceil(number * scale) : std::floor(number * scale)) / scale;
}

// As Python's int() cuts it; `otherwise` of what is no number.
Value cut_to_int(double real, const Value& otherwise) {
  if (!std::isfinite(real)) return otherwise;
  if (std::abs(real) >= 9.2e18) fail("a number beyond 64 bits");
  return static_cast<int64_t>(real);
}

// Python's float(): decimal, "inf" or "nan", and single underscores between digits.
std::optional<double> read_float(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
    if (text[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    plain += text[i];
  }
  if (plain.empty() || plain.find_first_of("xX_( ") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double real = std::strtod(plain.c_str(), &end);
  return end == plain.c_str() + plain.size() ? std::optional(real) : std::nullopt;
}

// Python's int(text, base), where the text is a number.
std::optional<int64_t> read_int(std::string_view text, int64_t base) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefix = [&](char small, int64_t of) {
    if (base != of && base != 0) return;
    if (text.size() < 3 || text[0] != '0' || (text[1] | 32) != small) return;
    text.remove_prefix(text[2] == '_' ? 3 : 2), base = of;
  };
  prefix('x', 16), prefix('o', 8), prefix('b', 2);
  if (base == 0 && text.size() > 1 && text[0] == '0' &&
      text.find_first_not_of("0_") != std::string_view::npos)
    return std::nullopt;  // "010" is no number of any base that it names
  if (base == 0) base = 10;
  if (text.empty() || base < 2 || base > 36) return std::nullopt;
  int64_t number = 0;
  bool beyond = false, after_digit = false;
  for (const char c : text) {
    const char small = static_cast<char>(c | 32);
    const int64_t digit = c >= '0' && c <= '9'           ? c - '0'
                          : small >= 'a' && small <= 'z' ? small - 'a' + 10
                                                         : 99;
    if (c == '_' && std::exchange(after_digit, false)) continue;
    if (digit >= base) return std::nullopt;
    beyond = beyond || __builtin_mul_overflow(number, base, &number) ||
             __builtin_sub_overflow(number, digit, &number);
    after_digit = true;
  }
  if (!after_digit) return std::nullopt;
  if (beyond || (!negative && number == INT64_MIN)) fail("a number beyond 64 bits");
  return negative ? number : -number;
}

Value to_int(Run&, const Value& input, const Arguments& a) {
  if (const Undefined* undefined = input.get<Undefined>()) fail(undefined->what);
  const Value otherwise = a.get(0, "default", 0);
  if (const double* real = input.get<double>()) return cut_to_int(*real, otherwise);
  if (input.get<int64_t>() != nullptr || input.get<bool>() != nullptr) return int_of(input);
  if (input.get<std::string>() == nullptr) return otherwise;
  const std::string_view text = stripped(str_of(input));
  if (const std::optional<int64_t> number = read_int(text, int_of(a.get(1, "base", 10)))) return *number;
  const std::optional<double> real = read_float(text);
  return real ? cut_to_int(*real, otherwise) : otherwise;
}

Value to_float(Run&, const Value& input, const Arguments& a) {
  if (const Undefined* undefined = input.get<Undefined>()) fail(undefined->what);
  const Value otherwise = a.get(0, "default", 0.0);
  if (input.get<double>() != nullptr) return input;
  if (input.get<int64_t>() != nullptr || input.get<bool>() != nullptr)
    return static_cast<double>(int_of(input));
  if (input.get<std::string>() == nullptr) return otherwise;
  const std::optional<double> real = read_float(stripped(str_of(input)));
  return real ? Value(*real) : otherwise;
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

// As the method, of whatever prints.
Value replaced(Run&, const Value& input, const Arguments& a) {
  const Value *from = a.find(0, "old"), *to = a.find(1, "new");
  if (from == nullptr || to == nullptr) fail("replace takes what to replace, and by what");
  const Value count = a.get(2, "count", None{});
  return by_method(input, "replace", {{to_str(*from), to_str(*to), count.is_none() ? Value(-1) : count}, {}});
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

constexpr FilterRow kValueFilters[] = {
    {"abs",
     [](Run&, const Value& v, const Arguments&) {
       return compare(v, Value(0)) < 0 ? negated(v) : binary("+", v, Value(0));
     }},
    {"attr",
     [](Run&, const Value& v, const Arguments& a) { return attribute(v, to_str(a.get(0, "name", ""))); }},
    {"capitalize", [](Run&, const Value& v, const Arguments&) { return by_method(v, "capitalize"); }},
    {"count", length},
    {"d", or_default},
    {"default", or_default},
    {"e", escaped},
    {"escape", escaped},
    {"float", to_float},
    {"format", format},
    {"indent", indented},
    {"int", to_int},
    {"length", length},
    {"lower", [](Run&, const Value& v, const Arguments&) { return by_method(v, "lower"); }},
    {"replace", replaced},
    {"round", rounded},
    {"safe", [](Run&, const Value& v, const Arguments&) { return v; }},
    {"string", [](Run&, const Value& v, const Arguments&) { return Value(to_str(v)); }},
    {"title", titled},
    {"tojson", tojson},
    {"trim", [](Run&, const Value& v, const Arguments& a) { return by_method(v, "strip", a); }},
    {"upper", [](Run&, const Value& v, const Arguments&) { return by_method(v, "upper"); }},
    {"wordcount", [](Run&, const Value& v, const Arguments&) { return words_in(to_str(v)); }},
};

const FilterRow* find_filter(std::string_view name) {
  for (const std::span<const FilterRow> rows : {std::span<const FilterRow>(kValueFilters), item_filters()}) {
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const FilterRow& row) { return row.name == name; });
    if (found != rows.end()) return &*found;
  }
  return nullptr;
}

}  // namespace

bool has_filter(const std::string& name) { return find_filter(name) != nullptr; }

Value filter(Run& run, const std::string& name, const Value& input, const Arguments& arguments) {
  const FilterRow* row = find_filter(name);
  if (row == nullptr) fail(fmt::format("No filter named '{}'.", name));
  return row->filter(run, input, arguments);
}

}  // namespace lockstep::chat::jinja
