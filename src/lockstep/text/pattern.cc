#define PCRE2_CODE_UNIT_WIDTH 8
#include "lockstep/text/pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/text/fault.h"
#include "lockstep/text/unicode.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

using Holds = std::function<bool(uint32_t bits)>;

// "\x{41}-\x{5a}...": the inside of a class.
std::string ranges_where(const Holds& holds) {
  const Unicode& unicode = Unicode::table();
  std::string out;
  constexpr uint32_t kCodes = 0x110000;
  for (uint32_t code = 0; code < kCodes; ++code) {
    if ((code >= 0xD800 && code < 0xE000) || !holds(unicode.bits(code))) continue;
    uint32_t last = code;
    while (last + 1 < kCodes && last + 1 != 0xD800 && holds(unicode.bits(last + 1))) ++last;
    out +=
        last == code ? fmt::format("\\x{{{:x}}}", code) : fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", code, last);
    code = last;
  }
  return out;
}

// What \p{NAME} asks; null: we do not know it, and PCRE2 is asked.
Holds property(std::string_view name) {
  if (name == "L" || name == "Letter") return [](uint32_t bits) { return (bits & kLetter) != 0; };
  if (name == "N" || name == "Number") return [](uint32_t bits) { return (bits & kNumber) != 0; };
  if (name == "M" || name == "Mark") return [](uint32_t bits) { return (bits & kMark) != 0; };
  const auto between = [](Category first, Category last) -> Holds {
    return [=](uint32_t bits) { return (bits & kCategoryMask) >= first && (bits & kCategoryMask) <= last; };
  };
  if (name == "P" || name == "Punctuation") return between(kPc, kPo);
  if (name == "S" || name == "Symbol") return between(kSm, kSo);
  if (name == "Z") return between(kZs, kZp);
  for (int i = 1; i < kCategories; ++i) {
    if (name == kCategoryNames[i]) return between(static_cast<Category>(i), static_cast<Category>(i));
  }
  return nullptr;
}

// Oniguruma's \w alone has the six numbers of Latin-1 that are no digits; inside a class it has not.
Holds shorthand(char letter, bool in_class) {
  switch (letter) {
    case 's':
      return [](uint32_t bits) { return (bits & kSpace) != 0; };
    case 'd':
      return [](uint32_t bits) { return (bits & kCategoryMask) == kNd; };
    case 'w':
      return [=](uint32_t bits) {
        return (bits & kOnigWord) != 0 && !(in_class && (bits & kCategoryMask) == kNo);
      };
    default:
      return nullptr;
  }
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

}  // namespace

std::string written_out(const std::string& pattern) {
  std::string out;
  int depth = 0;  // of classes
  for (size_t at = 0; at < pattern.size();) {
    if (pattern[at] == '\\') {
      const Escape escape = escape_at(pattern, at, depth > 0);
      if (escape.holds) {
        const Holds holds = [&](uint32_t bits) { return escape.holds(bits) != escape.negated; };
        const std::string ranges = ranges_where(holds);
        out += depth > 0 ? ranges : "[" + ranges + "]";
        at += escape.size;
        continue;
      }
      out += pattern.substr(at, 2);
      at += 2;
      continue;
    }
    if (pattern[at] == '[') {
      ++depth;
      out += pattern[at++];
      if (at < pattern.size() && pattern[at] == '^') out += pattern[at++];
      if (at < pattern.size() && pattern[at] == ']') out += pattern[at++];  // a ] that comes first is one
      continue;
    }
    if (pattern[at] == ']' && depth > 0) --depth;
    out += pattern[at++];
  }
  return out;
}

struct Pattern::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

namespace {

size_t behind_char(std::string_view text, size_t at) {
  for (++at; at < text.size() && continues_char(text[at]);) ++at;
  return at;
}

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

Pattern::Pattern(const std::string& pattern, Engine engine)
    : code_(std::make_unique<Code>()), source_(pattern) {
  const std::string written = written_out(pattern);
  int error = 0;
  size_t place = 0;
  uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK;
  if (engine == Engine::oniguruma) options |= PCRE2_MULTILINE;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(written.data()), written.size(), options, &error,
                              &place, nullptr);
  if (code_->code == nullptr) {
    throw Fault{
        242, fmt::format(
                 "it splits by the pattern {}, which cannot be used: {}; take a tokenizer whose pattern is "
                 "written in the common syntax",
                 base::quoted(pattern, 200), message_of(error))};
  }
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);
}

Pattern::~Pattern() = default;

void Pattern::each_match(std::string_view text, const std::function<void(size_t, size_t)>& found) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code_->code, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  const std::unique_ptr<pcre2_jit_stack, decltype(&pcre2_jit_stack_free)> stack(
      pcre2_jit_stack_create(size_t{64} << 10, size_t{64} << 20, nullptr), pcre2_jit_stack_free);
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  size_t last = SIZE_MAX;  // the end of the match before
  for (size_t at = 0; at <= text.size();) {
    const int count = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (count == PCRE2_ERROR_NOMATCH) return;
    if (count < 0) {
      throw base::DataError(
          242, fmt::format("the pattern {} gives up at byte {} of a text: {}; take another tokenizer, or "
                           "shorter texts",
                           base::quoted(source_, 200), at, message_of(count)));
    }
    const size_t* place = pcre2_get_ovector_pointer(data.get());
    if (place[1] == place[0] && place[0] == last) {  // nothing, right behind a match: it counts for nothing
      at = behind_char(text, at);
      continue;
    }
    found(place[0], place[1]);
    last = place[1];
    at = place[1] > place[0] ? place[1] : behind_char(text, place[1]);
  }
}

}  // namespace lockstep::text
