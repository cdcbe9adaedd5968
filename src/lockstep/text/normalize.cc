#include "lockstep/text/normalize.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <vector>

#include "lockstep/text/unicode.h"
#include "lockstep/text/unicode_data.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

constexpr uint32_t kHangul = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTrail = 0x11A7;
constexpr uint32_t kLeads = 19, kVowels = 21, kTrails = 28, kSyllables = kLeads * kVowels * kTrails;

using Mapping = std::unordered_map<uint32_t, std::span<const uint32_t>>;

Mapping mapping_of(const uint32_t* numbers, size_t size) {
  Mapping out;
  for (size_t i = 0; i < size; i += 2 + numbers[i + 1])
    out.emplace(numbers[i], std::span(numbers + i + 2, numbers[i + 1]));
  return out;
}

struct Tables {
  Mapping canonical = mapping_of(kCanonical, kCanonicalSize);
  Mapping compatible = mapping_of(kCompatible, kCompatibleSize);
  Mapping small = mapping_of(kLowercase, kLowercaseSize);
  Mapping newer = mapping_of(kNewerCanonical, kNewerCanonicalSize);
  std::unordered_map<uint32_t, uint32_t> newer_classes;
  std::unordered_map<uint64_t, uint32_t> joined, newer_joined;
  Tables() {
    const auto fill = [](auto& into, const uint32_t* triples, size_t size) {
      for (size_t i = 0; i < size; i += 3)
        into.emplace(uint64_t{triples[i]} << 32 | triples[i + 1], triples[i + 2]);
    };
    fill(joined, kCompositions, kCompositionsSize);
    fill(newer_joined, kNewerCompositions, kNewerCompositionsSize);
    for (size_t i = 0; i < kNewerClassesSize; i += 2)
      newer_classes.emplace(kNewerClasses[i], kNewerClasses[i + 1]);
  }
};
const Tables& tables() {
  static const Tables all;
  return all;
}

uint32_t class_of(uint32_t code, bool newer) {
  if (newer) {
    const auto found = tables().newer_classes.find(code);
    if (found != tables().newer_classes.end()) return found->second;
  }
  const size_t runs = kClassRunsSize / 2;
  size_t low = 0, high = runs;  // the last run that begins at or before it
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    (kClassRuns[2 * middle] <= code ? low : high) = middle;
  }
  return kClassRuns[2 * low + 1];
}

struct Char {
  uint32_t code, order;  // `order`: its combining class
};

void decompose(uint32_t code, Form form, std::vector<Char>& out) {
  const bool compatible = form == Form::nfkc || form == Form::nfkd, newer = form == Form::nfc_newer;
  const auto put = [&](uint32_t one) { out.push_back({one, class_of(one, newer)}); };
  if (code - kHangul < kSyllables) {
    const uint32_t index = code - kHangul;
    put(kLead + index / (kVowels * kTrails));
    put(kVowel + index / kTrails % kVowels);
    if (index % kTrails != 0) put(kTrail + index % kTrails);
    return;
  }
  const Tables& all = tables();
  if (compatible) {
    if (const auto found = all.compatible.find(code); found != all.compatible.end()) {
      for (const uint32_t one : found->second) put(one);
      return;
    }
  }
  if (newer) {
    if (const auto found = all.newer.find(code); found != all.newer.end()) {
      for (const uint32_t one : found->second) put(one);
      return;
    }
  }
  if (const auto found = all.canonical.find(code); found != all.canonical.end()) {
    for (const uint32_t one : found->second) put(one);
    return;
  }
  put(code);
}

void order_marks(std::vector<Char>& text) {
  for (size_t first = 0; first < text.size();) {
    if (text[first].order == 0) {
      ++first;
      continue;
    }
    size_t last = first;
    while (last < text.size() && text[last].order != 0) ++last;
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(first),
                     text.begin() + static_cast<std::ptrdiff_t>(last),
                     [](const Char& a, const Char& b) { return a.order < b.order; });
    first = last;
  }
}

// 0: the two do not join.
uint32_t join(uint32_t a, uint32_t b, bool newer) {
  if (a - kLead < kLeads && b - kVowel < kVowels)
    return kHangul + ((a - kLead) * kVowels + (b - kVowel)) * kTrails;
  if (a - kHangul < kSyllables && (a - kHangul) % kTrails == 0 && b - kTrail - 1 < kTrails - 1)
    return a + (b - kTrail);
  const uint64_t pair = uint64_t{a} << 32 | b;
  if (newer) {
    if (const auto found = tables().newer_joined.find(pair); found != tables().newer_joined.end())
      return found->second;
  }
  const auto found = tables().joined.find(pair);
  return found == tables().joined.end() ? 0 : found->second;
}

void compose(std::vector<Char>& text, bool newer) {
  size_t kept = 0, starter = SIZE_MAX;
  uint32_t last_order = 0;  // of what stands between the starter and here
  for (size_t i = 0; i < text.size(); ++i) {
    const Char one = text[i];
    const bool adjacent = starter != SIZE_MAX && kept == starter + 1;
    const bool blocked = !adjacent && (last_order >= one.order || last_order == 0);
    if (starter != SIZE_MAX && (adjacent || !blocked)) {
      if (const uint32_t code = join(text[starter].code, one.code, newer)) {
        text[starter] = {code, 0};
        continue;
      }
    }
    if (one.order == 0) starter = kept;
    last_order = one.order;
    text[kept++] = one;
  }
  text.resize(kept);
}

bool composes(Form form) { return form != Form::nfd && form != Form::nfkd; }

void append_form(Form form, std::string_view text, std::string& out, std::vector<Char>& chars) {
  chars.clear();
  for (const char *at = text.data(), *end = at + text.size(); at < end;)
    decompose(next_char(at), form, chars);
  order_marks(chars);
  if (composes(form)) compose(chars, form == Form::nfc_newer);
  for (const Char& one : chars) append_char(out, one.code);
}

uint32_t change_bit(Form form) { return form == Form::nfkc ? kChangesNfkc : kChangesNfc; }

// Where the first character stands that the form may change; the end where there is none.
const char* first_change(uint32_t bit, const char* at, const char* end) {
  const Unicode& unicode = Unicode::table();
  while (at < end) {
    const char* before = at;
    if (static_cast<signed char>(*at) >= 0) {
      ++at;
    } else if (unicode.bits(next_char(at)) & bit) {
      return before;
    }
  }
  return end;
}

// Composed forms: a stretch from the last character that nothing changes to the next such one is all that
// counts.
std::string composed(Form form, std::string_view text) {
  const Unicode& unicode = Unicode::table();
  const uint32_t bit = change_bit(form);
  std::string out;
  std::vector<Char> chars;
  const char *copied = text.data(), *at = copied, *end = at + text.size();
  while ((at = first_change(bit, at, end)) < end) {
    const char* from = at > copied ? char_before(at) : at;
    while (at < end) {
      const char* before = at;
      if (!(unicode.bits(next_char(at)) & bit)) {
        at = before;
        break;
      }
    }
    out.append(copied, from);
    append_form(form, {from, at}, out, chars);
    copied = at;
  }
  return out.append(copied, end);
}

}  // namespace

bool is_in_form(Form form, std::string_view text) {
  const char* end = text.data() + text.size();
  if (composes(form)) return first_change(change_bit(form), text.data(), end) == end;
  return std::all_of(text.begin(), text.end(), [](char byte) { return static_cast<signed char>(byte) >= 0; });
}

std::string normal_form(Form form, std::string_view text) {
  if (is_in_form(form, text)) return std::string(text);
  if (composes(form)) return composed(form, text);
  std::string out;
  std::vector<Char> chars;
  append_form(form, text, out, chars);
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    if (static_cast<signed char>(*at) >= 0) {
      out += *at >= 'A' && *at <= 'Z' ? static_cast<char>(*at + 32) : *at;
      ++at;
      continue;
    }
    const uint32_t code = next_char(at);
    const auto found = tables().small.find(code);
    if (found == tables().small.end()) {
      append_char(out, code);
    } else {
      for (const uint32_t one : found->second) append_char(out, one);
    }
  }
  return out;
}

}  // namespace lockstep::text
