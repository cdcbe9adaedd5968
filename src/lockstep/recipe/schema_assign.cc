#include "lockstep/recipe/schema_assign.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <regex>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/recipe/path_list.h"

namespace lockstep::recipe {
namespace {

constexpr size_t kMostTextBytes = 4096, kMostListBytes = 1 << 18;  // lists of files may be long

std::string sentence_start(const Setting& setting) {
  return fmt::format("{} = {} ({})", setting.key.name, setting.written, setting.place);
}

std::string kind_of(const TomlValue& value) {
  struct Namer {
    std::string operator()(const TomlTable&) const { return "a section"; }
    std::string operator()(const TomlList&) const { return "a list"; }
    std::string operator()(const TomlOther& other) const { return other.what; }
    std::string operator()(bool) const { return "true or false"; }
    std::string operator()(int64_t) const { return "an integer"; }
    std::string operator()(double) const { return "a floating-point number"; }
    std::string operator()(const std::string&) const { return "a string"; }
  };
  return std::visit(Namer{}, value);
}

[[noreturn]] void refuse_range(const Setting& setting) {
  const std::string allowed = allowed_text(setting.key);
  throw base::ConfigError(
      103, fmt::format("{} is out of range; expected {}, for example {}", sentence_start(setting),
                       allowed.empty() ? "finite" : allowed, setting.key.example));
}

// Digits that no number here can hold, such as 1e400 or twenty nines: a number to a person, text to TOML.
bool is_beyond_numbers(const TomlValue& value) {
  constexpr double kBeyondWhole = 9223372036854775808.0;  // 2^63
  const auto* text = std::get_if<std::string>(&value);
  if (!text || text->empty()) return false;
  char* end = nullptr;
  const double number = std::strtod(text->c_str(), &end);
  const bool digits = std::isdigit(static_cast<unsigned char>(text->back())) != 0;  // not "inf", not "nan"
  return digits && *end == '\0' && std::abs(number) >= kBeyondWhole;
}

[[noreturn]] void refuse_type(const Setting& setting) {
  const bool number = setting.key.type != Key::Type::text && setting.key.type != Key::Type::boolean;
  if (number && is_beyond_numbers(setting.value)) {
    throw base::ConfigError(
        103, fmt::format("{} is too large; expected {}, for example {}", sentence_start(setting),
                         type_text(setting.key), setting.key.example));
  }
  throw base::ConfigError(102,
                          fmt::format("{} is {}; expected {}, for example {}", sentence_start(setting),
                                      kind_of(setting.value), type_text(setting.key), setting.key.example));
}

[[noreturn]] void refuse_text(const Setting& setting, const std::string& allowed) {
  std::string hint;
  if (const auto* text = std::get_if<std::string>(&setting.value)) {
    const std::string near = base::nearest_word(*text, setting.key.choices);
    if (!near.empty()) hint = fmt::format("; did you mean {}?", near);
  }
  throw base::ConfigError(
      104, fmt::format("{} is not allowed; expected {}{}", sentence_start(setting), allowed, hint));
}

void check_range(const Setting& setting, double value) {
  const Key& key = setting.key;
  const bool fits = std::isfinite(value) && (!key.at_least || value >= *key.at_least) &&
                    (!key.at_most || value <= *key.at_most) && (!key.above || value > *key.above);
  if (!fits) refuse_range(setting);
}

void check_text(const Setting& setting, const std::string& text) {
  const Key& key = setting.key;
  const bool files = key.list && key.names != Key::Names::nothing;
  const size_t most = files ? kMostListBytes : kMostTextBytes;
  if (text.size() > most) refuse_text(setting, fmt::format("at most {} bytes long", most));
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) refuse_text(setting, "free of control characters");
  }
  const bool listed = std::find(key.choices.begin(), key.choices.end(), text) != key.choices.end();
  if (!key.choices.empty() && !listed) refuse_text(setting, allowed_text(key));
  if (!key.pattern.empty() && !std::regex_match(text, std::regex(key.pattern))) {
    refuse_text(setting, allowed_text(key));
  }
}

int64_t whole_number(const Setting& setting) {
  constexpr double kExact = 9007199254740992;  // 2^53: beyond it a double skips whole numbers
  if (const auto* i = std::get_if<int64_t>(&setting.value)) {
    check_range(setting, static_cast<double>(*i));
    return *i;
  }
  const auto* d = std::get_if<double>(&setting.value);  // 1e6 is a whole number to a person
  if (!d || *d != std::trunc(*d) || std::abs(*d) > kExact) refuse_type(setting);
  check_range(setting, *d);
  return static_cast<int64_t>(*d);
}

// With commas between, as the key's text has them; those inside the names of files are told apart.
std::string list_text(const Setting& setting) {
  const auto& items = std::get<TomlList>(setting.value).items;
  return setting.key.names == Key::Names::nothing ? base::join(items, ",") : join_paths(items);
}

// One overload for each type a key can have.
struct Assigner {
  const Setting& setting;

  void operator()(bool* member) const {
    const auto* b = std::get_if<bool>(&setting.value);
    if (!b) refuse_type(setting);
    *member = *b;
  }
  void operator()(int64_t* member) const { *member = whole_number(setting); }
  void operator()(double* member) const {
    double value = 0;
    if (const auto* i = std::get_if<int64_t>(&setting.value)) {
      value = static_cast<double>(*i);
    } else if (const auto* d = std::get_if<double>(&setting.value)) {
      value = *d;
    } else {
      refuse_type(setting);
    }
    check_range(setting, value);
    *member = value;
  }
  void operator()(std::string* member) const {
    std::string text;
    if (const auto* s = std::get_if<std::string>(&setting.value)) {
      text = *s;
    } else if (std::holds_alternative<int64_t>(setting.value) && !setting.key.choices.empty()) {
      text = setting.written;  // parallel.zero = 2
    } else if (is_list_for(setting.key, setting.value)) {
      text = list_text(setting);
    } else {
      refuse_type(setting);
    }
    check_text(setting, text);
    *member = text;
  }
  void operator()(AutoInt* member) const {
    const auto* s = std::get_if<std::string>(&setting.value);
    *member = s && *s == "auto" ? AutoInt() : AutoInt(whole_number(setting));
  }
};

}  // namespace

bool is_list_for(const Key& key, const TomlValue& value) {
  const auto* list = std::get_if<TomlList>(&value);
  return key.list && list != nullptr && (!list->of_tables || key.tables) &&
         (list->of_text || (key.names == Key::Names::nothing && !key.tables));
}

std::string written_as(const TomlValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&value)) return toml_number(*d);
  if (const auto* s = std::get_if<std::string>(&value)) return base::quoted(*s);
  return "...";
}

void assign(const Setting& setting, Resolved& resolved) {
  std::visit(Assigner{setting}, setting.key.member(resolved.recipe));
  resolved.origin[setting.key.name] = setting.place;
}

}  // namespace lockstep::recipe
