// How Python writes values: str(), repr() and json.dumps().
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "lockstep/chat/jinja/value.h"
#include "lockstep/text/unicode.h"
#include "lockstep/text/utf8.h"

namespace lockstep::chat::jinja {

namespace {

// The shortest digits that read back as the same number; with a power of ten outside 1e-4 to 1e16.
std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[64];
  const char* end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific).ptr;
  const std::string written(buffer, static_cast<size_t>(end - buffer));  // -1.25e+02
  const size_t e = written.find('e'), sign = written[0] == '-' ? 1 : 0;
  const int exponent = std::stoi(written.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return written;
  std::string digits = written.substr(sign, 1) + (e > sign + 2 ? written.substr(sign + 2, e - sign - 2) : "");
  if (exponent < 0) {
    digits = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else {
    const auto point = static_cast<size_t>(exponent) + 1;
    if (digits.size() < point + 1) digits.append(point + 1 - digits.size(), '0');
    digits.insert(point, ".");
  }
  return (sign != 0 ? "-" : "") + digits;
}

// What Python's repr() leaves as it is.
bool is_printable(uint32_t code) {
  switch (text::Unicode::table().bits(code) & text::kCategoryMask) {
    case text::kCn:
    case text::kCc:
    case text::kCf:
    case text::kCo:
    case text::kZl:
    case text::kZp:
      return false;
    case text::kZs:
      return code == ' ';
    default:
      return true;
  }
}

std::string quoted(const std::string& value) {
  const char mark =
      value.find('\'') != std::string::npos && value.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, mark);
  for (const std::string_view one : characters_of(value)) {
    const char* at = one.data();
    const uint32_t code = text::next_char(at);
    if (code == static_cast<uint32_t>(mark) || code == '\\') {
      out += '\\';
      out += one;
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (is_printable(code)) {
      out += one;
    } else if (code < 0x100) {
      out += fmt::format("\\x{:02x}", code);
    } else if (code < 0x10000) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out += fmt::format("\\U{:08x}", code);
    }
  }
  return out + mark;
}

std::string json_string(const std::string& value, bool ascii) {
  std::string out = "\"";
  for (const std::string_view one : characters_of(value)) {
    const char* at = one.data();
    const uint32_t code = text::next_char(at);
    switch (code) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (code < 0x20 || (ascii && code > 0x7E && code < 0x10000)) {
          out += fmt::format("\\u{:04x}", code);
        } else if (ascii && code > 0x7E) {
          out +=
              fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
        } else {
          out += one;
        }
    }
  }
  return out + '"';
}

struct JsonWriter {
  std::optional<int64_t> indent;
  bool ascii = false, sorted = false;
  std::string_view item_separator, key_separator;

  std::string scalar(const Value& value) const {
    if (value.is_none()) return "null";
    if (const bool* known = value.get<bool>()) return *known ? "true" : "false";
    if (const double* number = value.get<double>()) {
      if (std::isnan(*number)) return "NaN";
      if (std::isinf(*number)) return *number > 0 ? "Infinity" : "-Infinity";
    }
    return to_str(value);
  }
  std::string break_at(int depth) const {
    return indent ? "\n" + std::string(static_cast<size_t>(*indent * depth), ' ') : "";
  }
  void write(const Value& value, int depth, std::string& out) const {
    if (depth > 200) fail("a value is nested too deeply to be written as JSON");
    if (const std::string* text = value.get<std::string>()) {
      out += json_string(*text, ascii);
    } else if (const List* list = value.get<List>(); list != nullptr && list->view == nullptr) {
      if (list->items.empty()) return void(out += "[]");
      out += '[';
      for (size_t i = 0; i < list->items.size(); ++i) {
        if (i > 0) out += item_separator;
        out += break_at(depth + 1);
        write(list->items[i], depth + 1, out);
      }
      out += break_at(depth) + "]";
    } else if (const Dict* dict = value.get<Dict>()) {
      write_dict(*dict, depth, out);
    } else if (value.is_undefined() || value.identity() != nullptr) {
      fail(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    } else {
      out += scalar(value);
    }
  }
  void write_dict(const Dict& dict, int depth, std::string& out) const {
    if (dict.items.empty()) return void(out += "{}");
    auto items = dict.items;
    if (sorted)
      std::stable_sort(items.begin(), items.end(),
                       [](auto& a, auto& b) { return compare(a.first, b.first) < 0; });
    out += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += item_separator;
      out += break_at(depth + 1);
      const std::string* key = items[i].first.get<std::string>();
      out += json_string(key != nullptr ? *key : scalar(items[i].first), ascii);
      out += key_separator;
      write(items[i].second, depth + 1, out);
    }
    out += break_at(depth) + "}";
  }
};

}  // namespace

std::string to_str(const Value& value) {
  if (const std::string* text = value.get<std::string>()) return *text;
  return value.is_undefined() ? "" : to_repr(value);
}

std::string to_repr(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (const bool* known = value.get<bool>()) return *known ? "True" : "False";
  if (const int64_t* whole = value.get<int64_t>()) return fmt::format("{}", *whole);
  if (const double* real = value.get<double>()) return float_text(*real);
  if (const std::string* text = value.get<std::string>()) return quoted(*text);
  std::string out;
  if (const List* list = value.get<List>()) {
    for (const Value& item : list->items) out += (out.empty() ? "" : ", ") + to_repr(item);
    if (list->view != nullptr) return fmt::format("{}([{}])", list->view, out);
    if (!list->tuple) return "[" + out + "]";
    return "(" + out + (list->items.size() == 1 ? ",)" : ")");
  }
  if (const Dict* dict = value.get<Dict>()) {
    for (const auto& [key, item] : dict->items)
      out += (out.empty() ? "" : ", ") + to_repr(key) + ": " + to_repr(item);
    return "{" + out + "}";
  }
  fail(fmt::format("a {} has no text that would be the same twice", type_name(value)));
}

std::string to_json(const Value& value, std::optional<int64_t> indent, bool ascii, bool sorted,
                    std::string_view item_separator, std::string_view key_separator) {
  std::string out;
  JsonWriter{indent, ascii, sorted, item_separator, key_separator}.write(value, 0, out);
  return out;
}

}  // namespace lockstep::chat::jinja
