#include "lockstep/text/scan.h"

#include <string>

#include "lockstep/text/utf8.h"

namespace lockstep::text {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kCl100kPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
const std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kDeepSeekPatterns[3] = {
    R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

namespace {

constexpr std::string_view kOldR50kPattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr std::string_view kR50kPattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The character at `at`: its bits, and where the next begins.
struct Seen {
  uint32_t bits;
  const char* next;
};
inline Seen see(const Unicode& unicode, const char* at) {
  if (static_cast<signed char>(*at) >= 0) return {unicode.ascii()[static_cast<unsigned char>(*at)], at + 1};
  const uint32_t code = next_char(at);
  return {unicode.bits(code), at};
}

// Behind the characters from `at` on that have one of these bits.
inline const char* while_any(const Unicode& unicode, const char* at, const char* end, uint32_t mask) {
  while (at < end) {
    const Seen seen = see(unicode, at);
    if (!(seen.bits & mask)) break;
    at = seen.next;
  }
  return at;
}
// And behind those that have none of them.
inline const char* while_none(const Unicode& unicode, const char* at, const char* end, uint32_t mask) {
  while (at < end) {
    const Seen seen = see(unicode, at);
    if (seen.bits & mask) break;
    at = seen.next;
  }
  return at;
}

inline const char* at_most(const Unicode& unicode, const char* at, const char* end, uint32_t mask,
                           int count) {
  for (; count > 0 && at < end; --count) {
    const Seen seen = see(unicode, at);
    if (!(seen.bits & mask)) break;
    at = seen.next;
  }
  return at;
}

enum class Case : uint8_t { exact, any };

// Behind 's, 't, 're, 've, 'm, 'll or 'd at `at`, or `at`. In any case, U+017F is an s.
template <Case kCase>
inline const char* contraction(const char* at, const char* end) {
  if (end - at < 2 || *at != '\'') return at;
  const auto small = [](char c) {
    return kCase == Case::any && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = small(at[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if (end - at < 3) return at;
  if (kCase == Case::any && at[1] == '\xC5' && at[2] == '\xBF') return at + 3;
  const char second = small(at[2]);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
    return at + 3;
  return at;
}

enum class Lines : uint8_t { none, apart, apart_but_last };  // whether \s*[\r\n]+ stands before \s+(?!\S)

// White space from `at` on: \s*[\r\n]+ where asked for, then \s+(?!\S), then \s+. apart_but_last: all of it
// at the end of the text (\s++$ stands first). Characters with the bits kStop end the text.
template <Lines kLines, uint32_t kStop = 0>
inline const char* space(const Unicode& unicode, const char* at, const char* end) {
  const char *last = at, *next = at, *line = nullptr;
  while (next < end) {
    const Seen seen = see(unicode, next);
    if (!(seen.bits & kSpace)) {
      if (seen.bits & kStop) end = next;
      break;
    }
    last = next;
    next = seen.next;
    if (kLines != Lines::none && (seen.bits & kNewline)) line = next;
  }
  if (kLines == Lines::apart_but_last && next == end) return end;
  if (kLines != Lines::none && line != nullptr) return line;
  return next == end || last == at ? next : last;
}

const char* scan_gpt2(const Unicode& unicode, const char* at, const char* end) {
  if (const char* next = contraction<Case::exact>(at, end); next != at) return next;
  const char* begin = at + (*at == ' ');
  if (begin < end) {
    const Seen seen = see(unicode, begin);
    if (seen.bits & kLetter) return while_any(unicode, seen.next, end, kLetter);
    if (seen.bits & kNumber) return while_any(unicode, seen.next, end, kNumber);
    if (!(seen.bits & kSpace)) return while_none(unicode, seen.next, end, kSpace | kLetter | kNumber);
  }
  return space<Lines::none>(unicode, at, end);
}

// cl100k, Llama 3, Qwen: they differ in what a word is made of, how many digits stand together, and at the
// end.
template <uint32_t kWord, int kDigits, Lines kLines>
const char* scan_cl100k(const Unicode& unicode, const char* at, const char* end) {
  if (*at == '\'') {
    if (const char* next = contraction<Case::any>(at, end); next != at) return next;
  }
  const Seen first = see(unicode, at);
  if (first.bits & kWord) return while_any(unicode, first.next, end, kWord);
  if (first.bits & kNumber) return at_most(unicode, first.next, end, kNumber, kDigits - 1);
  constexpr uint32_t kNotOther = kSpace | kWord | kNumber;
  if (first.next < end) {
    const Seen second = see(unicode, first.next);
    if (!(first.bits & kNewline) && (second.bits & kWord)) return while_any(unicode, second.next, end, kWord);
    if (*at == ' ' && !(second.bits & kNotOther)) {
      const char* next = while_none(unicode, second.next, end, kNotOther);
      return while_any(unicode, next, end, kNewline);
    }
  }
  if (first.bits & kSpace) return space<kLines>(unicode, at, end);
  const char* next = while_none(unicode, first.next, end, kNotOther);
  return while_any(unicode, next, end, kNewline);
}

// [upper]*[lower]+ from `at` on, or `at`. Characters that are both (Lo, Lm, M) are given back by the first
// part where the second needs one.
inline const char* upper_lower(const Unicode& unicode, const char* at, const char* end) {
  const char *next = at, *both = at;  // `both`: behind the last one that is both
  while (next < end) {
    const Seen seen = see(unicode, next);
    if (!(seen.bits & kUpper)) {
      return seen.bits & kLower ? while_any(unicode, seen.next, end, kLower) : both;
    }
    next = seen.next;
    if (seen.bits & kLower) both = next;
  }
  return both;
}

// A word of o200k without what it ends with, or `at`.
const char* o200k_word(const Unicode& unicode, const char* at, const char* end) {
  const Seen first = see(unicode, at);
  const char* behind =
      first.bits & (kNewline | kLetter | kNumber) ? nullptr : first.next;  // of a sign before the word
  if (behind != nullptr) {
    if (const char* next = upper_lower(unicode, behind, end); next != behind) return next;
  }
  if (!(first.bits & (kUpper | kLower)) && behind == nullptr) return at;
  if (const char* next = upper_lower(unicode, at, end); next != at) return next;
  if (behind != nullptr) {
    if (const char* next = while_any(unicode, behind, end, kUpper); next != behind) return next;
  }
  return while_any(unicode, at, end, kUpper);
}

template <bool kContractions, int kDigits>
const char* scan_o200k(const Unicode& unicode, const char* at, const char* end) {
  if (const char* next = o200k_word(unicode, at, end); next != at)
    return kContractions ? contraction<Case::any>(next, end) : next;
  const Seen first = see(unicode, at);
  if (first.bits & kNumber) return at_most(unicode, first.next, end, kNumber, kDigits - 1);
  constexpr uint32_t kNotOther = kSpace | kLetter | kNumber;
  const char* other = *at == ' ' ? at + 1 : at;
  const char* next = while_none(unicode, other, end, kNotOther);
  if (next != other) {
    while (next < end && (*next == '\r' || *next == '\n' || *next == '/')) ++next;
    return next;
  }
  return space<Lines::apart>(unicode, at, end);
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The first two splits of DeepSeek cut these out. The third sees each stretch of Han and Kana, and each
// stretch between what was cut out, as a text of its own.
constexpr uint32_t kCut = kNumber | kHanKana;
enum class Stretch : uint8_t { han_kana, between };
template <Stretch kStretch>
inline bool belongs(uint32_t bits) {
  return kStretch == Stretch::han_kana ? (bits & kHanKana) != 0 : (bits & kCut) == 0;
}

template <Stretch kStretch>
const char* while_both(const Unicode& unicode, const char* at, const char* end, uint32_t mask) {
  while (at < end) {
    const Seen seen = see(unicode, at);
    if (!(seen.bits & mask) || !belongs<kStretch>(seen.bits)) break;
    at = seen.next;
  }
  return at;
}

// The third split at `at`; `at` where it matches nothing.
template <Stretch kStretch>
const char* deepseek_match(const Unicode& unicode, const char* at, const char* end) {
  const Seen first = see(unicode, at);
  const bool ascii = static_cast<signed char>(*at) >= 0;
  if (ascii && (first.bits & kSymbol) && at + 1 < end && is_ascii_letter(at[1])) {
    for (at += 2; at < end && is_ascii_letter(*at);) ++at;
    return at;
  }
  constexpr uint32_t kWord = kLetter | kMark;
  if (!(first.bits & (kNewline | kLetter | kSymbol))) {
    const char* next = while_both<kStretch>(unicode, first.next, end, kWord);
    if (next != first.next) return next;
  }
  if (first.bits & kWord) return while_both<kStretch>(unicode, first.next, end, kWord);
  const char* other = *at == ' ' ? at + 1 : at;
  if (const char* next = while_both<kStretch>(unicode, other, end, kSymbol); next != other)
    return while_both<kStretch>(unicode, next, end, kNewline);
  if (first.bits & kSpace) return space<Lines::apart, kCut>(unicode, at, end);
  return at;
}

template <Stretch kStretch>
const char* scan_stretch(const Unicode& unicode, const char* at, const char* end) {
  const char* next = deepseek_match<kStretch>(unicode, at, end);
  if (next != at) return next;
  do {  // nothing matches: all of it up to the next match is one piece
    at = see(unicode, at).next;
  } while (at < end && belongs<kStretch>(see(unicode, at).bits) &&
           deepseek_match<kStretch>(unicode, at, end) == at);
  return at;
}

const char* scan_deepseek(const Unicode& unicode, const char* at, const char* end) {
  const Seen first = see(unicode, at);
  if (first.bits & kNumber) return at_most(unicode, first.next, end, kNumber, 2);
  if (first.bits & kHanKana) return scan_stretch<Stretch::han_kana>(unicode, at, end);
  return scan_stretch<Stretch::between>(unicode, at, end);
}

struct Row {
  std::string_view pattern;
  Scan scan;
};
const Row kRows[] = {
    {kGpt2Pattern, scan_gpt2},
    {kR50kPattern, scan_gpt2},
    {kOldR50kPattern, scan_gpt2},
    {kLlama3Pattern, scan_cl100k<kLetter, 3, Lines::apart>},
    {kQwenPattern, scan_cl100k<kLetter, 1, Lines::apart>},
    {kQwen35Pattern, scan_cl100k<kLetter | kMark, 1, Lines::apart>},
    {kCl100kPattern, scan_cl100k<kLetter, 3, Lines::apart_but_last>},
    {kO200kPattern, scan_o200k<true, 3>},
    {kTekkenPattern, scan_o200k<false, 1>},
};

// Files write the end of a line as itself or as \n.
std::string with_escapes(std::string_view pattern) {
  std::string out;
  for (const char c : pattern) {
    if (c == '\r') {
      out += "\\r";
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Scan find_scan(std::string_view pattern) {
  const std::string wanted = with_escapes(pattern);
  for (const Row& row : kRows) {
    if (row.pattern == wanted) return row.scan;
  }
  return nullptr;
}

bool same_pattern(std::string_view a, std::string_view b) { return with_escapes(a) == with_escapes(b); }

Scan deepseek_scan() { return scan_deepseek; }

}  // namespace lockstep::text
