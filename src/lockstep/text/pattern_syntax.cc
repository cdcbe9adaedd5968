// What PCRE2 is given for a pattern of Oniguruma (as Ruby writes them) or of Rust's: the same marks mean
// other things to it, or the same things of an older Unicode.
#include <fmt/format.h>

#include <functional>
#include <vector>

#include "lockstep/base/text.h"
#include "lockstep/text/fault.h"
#include "lockstep/text/pattern.h"
#include "lockstep/text/unicode.h"

namespace lockstep::text {
namespace {

using Holds = std::function<bool(uint32_t code, uint32_t bits)>;

// "\x{41}-\x{5a}...": the inside of a class.
std::string ranges_where(const Holds& holds) {
  const Unicode& unicode = Unicode::table();
  constexpr uint32_t kCodes = 0x110000;
  const auto taken = [&](uint32_t code) { return holds(code, unicode.bits(code)); };
  std::string out;
  for (uint32_t code = 0; code < kCodes; ++code) {
    if ((code >= 0xD800 && code < 0xE000) || !taken(code)) continue;
    uint32_t last = code;
    while (last + 1 < kCodes && last + 1 != 0xD800 && taken(last + 1)) ++last;
    out +=
        last == code ? fmt::format("\\x{{{:x}}}", code) : fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", code, last);
    code = last;
  }
  return out;
}

// Unicode 16, as both engines have it.
bool is_han(uint32_t code) {
  static constexpr uint32_t kRanges[][2] = {
      {0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},   {0x3007, 0x3007},
      {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},
      {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739},
      {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
      {0x30000, 0x3134A}, {0x31350, 0x323AF}};
  for (const auto& [first, last] : kRanges) {
    if (code >= first && code <= last) return true;
  }
  return false;
}

// What \p{NAME} asks; null: we do not know it, and PCRE2 is asked.
Holds property(std::string_view name) {
  const auto with = [](uint32_t bit) -> Holds {
    return [=](uint32_t, uint32_t bits) { return (bits & bit) != 0; };
  };
  const auto between = [](Category first, Category last) -> Holds {
    return [=](uint32_t, uint32_t bits) {
      return (bits & kCategoryMask) >= first && (bits & kCategoryMask) <= last;
    };
  };
  if (name == "L" || name == "Letter") return with(kLetter);
  if (name == "N" || name == "Number") return with(kNumber);
  if (name == "M" || name == "Mark") return with(kMark);
  if (name == "P" || name == "Punctuation") return between(kPc, kPo);
  if (name == "S" || name == "Symbol") return between(kSm, kSo);
  if (name == "Z") return between(kZs, kZp);
  if (name == "Han") return [](uint32_t code, uint32_t) { return is_han(code); };
  for (int i = 1; i < kCategories; ++i) {
    if (name == kCategoryNames[i]) return between(static_cast<Category>(i), static_cast<Category>(i));
  }
  return nullptr;
}

bool is_hex_digit(uint32_t code) {
  return (code >= '0' && code <= '9') || ((code | 0x20) >= 'a' && (code | 0x20) <= 'f' && code < 128);
}

// Oniguruma's \w alone has the six numbers of Latin-1 that are no digits; inside a class it has not.
Holds shorthand(char letter, bool in_class) {
  switch (letter) {
    case 's':
      return [](uint32_t, uint32_t bits) { return (bits & kSpace) != 0; };
    case 'd':
      return [](uint32_t, uint32_t bits) { return (bits & kCategoryMask) == kNd; };
    case 'w':
      return [=](uint32_t, uint32_t bits) {
        return (bits & kOnigWord) != 0 && !(in_class && (bits & kCategoryMask) == kNo);
      };
    case 'h':
      return [](uint32_t code, uint32_t) { return is_hex_digit(code); };
    default:
      return nullptr;
  }
}

Holds posix(std::string_view name) {
  const auto is = [](uint32_t bits, Category one) { return (bits & kCategoryMask) == one; };
  if (name == "digit") return shorthand('d', true);
  if (name == "space") return shorthand('s', true);
  if (name == "word") return shorthand('w', true);
  if (name == "xdigit") return shorthand('h', true);
  if (name == "punct") return [](uint32_t, uint32_t bits) { return (bits & kSymbol) != 0; };
  if (name == "ascii") return [](uint32_t code, uint32_t) { return code < 128; };
  if (name == "cntrl") return [=](uint32_t, uint32_t bits) { return is(bits, kCc); };
  if (name == "blank") return [=](uint32_t code, uint32_t bits) { return code == '\t' || is(bits, kZs); };
  return nullptr;
}

struct Escape {
  Holds holds;
  bool negated = false;
  size_t size = 0;  // bytes of the pattern
};

// The class that `pattern` names at `at`, a backslash. Without one: `holds` is null.
Escape escape_at(std::string_view pattern, size_t at, bool in_class) {
  if (at + 1 >= pattern.size()) return {};
  const char letter = pattern[at + 1];
  const char small = static_cast<char>(letter | 0x20);
  if (small != 'p') return {shorthand(small, in_class), letter != small, 2};
  size_t name = at + 2, end = name + 1;
  if (name < pattern.size() && pattern[name] == '{') {
    end = pattern.find('}', ++name);
    if (end == std::string_view::npos) return {};
  }
  const bool caret = name < pattern.size() && pattern[name] == '^';
  const std::string_view word = pattern.substr(name + caret, end - name - caret);
  const bool braces = pattern[at + 2] == '{';
  return {property(word), (letter == 'P') != caret, end + braces - at};
}

// One pattern, from left to right.
class Writer {
 public:
  Writer(std::string_view pattern, Engine engine) : pattern_(pattern), engine_(engine) {}

  std::string all() {
    std::string out;
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '\\') {
        out += escape();
      } else if (pattern_[at_] == '[') {
        out += char_class();
      } else if (rest().starts_with("(?")) {
        out += group();
      } else if (pattern_[at_] == '{') {
        out += count();
      } else {
        out += pattern_[at_++];
      }
    }
    return out;
  }

 private:
  std::string_view rest() const { return pattern_.substr(at_); }
  std::string taken(size_t size) {
    const std::string_view text = rest().substr(0, size);
    at_ += text.size();
    return std::string(text);
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Fault{
        242,
        fmt::format("it splits by the pattern {}, which cannot be used: {}; take a tokenizer whose pattern "
                    "is written in the common syntax",
                    base::quoted(std::string(pattern_), 200), what)};
  }

  // Outside of classes.
  std::string escape() {
    const char letter = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    if (letter == 'b' || letter == 'B') {
      at_ += 2;
      const std::string word = "[" + ranges_where(shorthand('w', false)) + "]";
      const char* pair =
          letter == 'b' ? "(?:(?<={0})(?!{0})|(?<!{0})(?={0}))" : "(?:(?<={0})(?={0})|(?<!{0})(?!{0}))";
      return fmt::format(fmt::runtime(pair), word);
    }
    if (letter == 'X') refuse("\\X asks for a Unicode that is not here");
    if (engine_ == Engine::oniguruma && letter == 'v')
      return at_ += 2, "\\x0b";  // to PCRE2 all that ends lines
    if (engine_ == Engine::oniguruma && letter == 'O') return at_ += 2, "(?s:.)";
    const Escape escape = escape_at(pattern_, at_, false);
    if (!escape.holds) return taken(2);
    at_ += escape.size;
    return "[" + ranges_of(escape) + "]";
  }
  static std::string ranges_of(const Escape& escape) {
    return ranges_where(
        [&](uint32_t code, uint32_t bits) { return escape.holds(code, bits) != escape.negated; });
  }

  // (?m) of Ruby lets a dot match the end of a line, which is (?s) elsewhere; its ^ and $ stand at every line
  // anyway.
  std::string group() {
    const size_t end = pattern_.find_first_not_of("imsx-", at_ + 2);
    const bool options = end != std::string_view::npos && (pattern_[end] == ':' || pattern_[end] == ')');
    std::string text = taken(options ? end - at_ : 2);
    if (options && engine_ == Engine::oniguruma) {
      for (char& c : text) c = c == 'm' ? 's' : c;
    }
    return text;
  }

  // {1,3}+ takes all there is in Ruby: as often as it can, one to three. PCRE2 would take three at most.
  std::string count() {
    const size_t end = pattern_.find_first_not_of("0123456789,", at_ + 1);
    const bool counts = end != std::string_view::npos && pattern_[end] == '}' && end > at_ + 1;
    if (engine_ == Engine::oniguruma && counts && end + 1 < pattern_.size() && pattern_[end + 1] == '+')
      refuse("a count with a + behind it");
    return taken(1);
  }

  // A class may hold others, and && takes what both sides have: written as looks ahead at one character.
  std::string char_class() {
    if (++depth_ > 20) refuse("classes within classes");
    ++at_;
    const bool negated = rest().starts_with('^');
    if (negated) ++at_;
    std::string all, items;
    std::vector<std::string> nested;
    if (rest().starts_with(']')) items += taken(1);  // one that comes first is one
    const auto end_operand = [&] {
      std::string one;
      if (!items.empty()) one = "[" + items + "]";
      for (const std::string& inner : nested) one += (one.empty() ? "" : "|") + inner;
      if (one.empty()) refuse("a class without characters");
      if (nested.size() + !items.empty() > 1) one = "(?:" + one + ")";
      all = all.empty() ? one : "(?=" + one + ")" + all;
    };
    bool intersects = false;
    for (;;) {
      if (at_ >= pattern_.size()) refuse("a class that does not end");
      if (pattern_[at_] == ']') break;
      if (rest().starts_with("[:")) {
        items += posix_class();
      } else if (pattern_[at_] == '[') {
        nested.push_back(char_class());
      } else if (rest().starts_with("&&")) {
        at_ += 2;
        end_operand();
        items.clear(), nested.clear(), intersects = true;
      } else {
        items += item();
      }
    }
    ++at_, --depth_;
    if (negated && nested.empty() && !intersects) return "[^" + items + "]";
    end_operand();
    if (negated) return "(?:(?!" + all + ")(?s:.))";
    return intersects ? "(?:" + all + ")" : all;
  }
  // [:punct:] and the like; of alpha and those that follow from it, the engines have lists of their own.
  std::string posix_class() {
    const size_t end = std::min(rest().find(":]"), rest().size());
    std::string_view name = rest().substr(2, end - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    Escape escape{.holds = posix(name), .negated = negated};
    if (!escape.holds) refuse(fmt::format("the class [:{}:]", base::quoted(std::string(name), 40)));
    at_ += end + 2;
    return ranges_of(escape);
  }
  std::string item() {
    if (pattern_[at_] != '\\') return taken(1);
    const Escape escape = escape_at(pattern_, at_, true);
    if (!escape.holds) return taken(2);
    at_ += escape.size;
    return ranges_of(escape);
  }

  std::string_view pattern_;
  Engine engine_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string written_out(const std::string& pattern, Engine engine) { return Writer(pattern, engine).all(); }

}  // namespace lockstep::text
