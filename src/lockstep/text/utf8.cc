#include "lockstep/text/utf8.h"

#include <cstring>

namespace lockstep::text {
namespace {

struct Step {
  size_t length;  // bytes to go on by
  bool whole;     // they are a character
};

// What a first byte allows as its second, and how many follow.
struct Form {
  unsigned char least, most;
  size_t length;  // 0: no character begins so
};
Form form_of(unsigned char first) {
  if (first < 0x80) return {0, 0, 1};
  if (first < 0xC2 || first > 0xF4) return {0, 0, 0};
  if (first < 0xE0) return {0x80, 0xBF, 2};
  if (first < 0xF0) {
    return {static_cast<unsigned char>(first == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(first == 0xED ? 0x9F : 0xBF), 3};
  }
  return {static_cast<unsigned char>(first == 0xF0 ? 0x90 : 0x80),
          static_cast<unsigned char>(first == 0xF4 ? 0x8F : 0xBF), 4};
}

Step step_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const Form form = form_of(byte(0));
  if (form.length <= 1) return {1, form.length == 1};
  const size_t left = text.size() - at;
  if (left < 2 || byte(1) < form.least || byte(1) > form.most) return {1, false};
  for (size_t i = 2; i < form.length; ++i) {
    if (i >= left || !continues_char(text[at + i])) return {i, false};
  }
  return {form.length, true};
}

// Behind the ASCII from `at` on, eight bytes at a time.
size_t behind_ascii(std::string_view text, size_t at) {
  while (at + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, sizeof word);
    if (word & 0x8080808080808080u) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

void append_char(std::string& text, uint32_t code) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

size_t whole_prefix(std::string_view text) {
  for (size_t at = 0;;) {
    at = behind_ascii(text, at);
    if (at == text.size()) return at;
    const Step step = step_at(text, at);
    if (!step.whole) return at;
    at += step.length;
  }
}

std::string_view whole_utf8(std::string_view text, std::string& store) {
  size_t at = whole_prefix(text);
  if (at == text.size()) return text;
  store.assign(text.substr(0, at));
  while (at < text.size()) {
    const Step step = step_at(text, at);
    store += step.whole ? text.substr(at, step.length) : kReplacement;
    at += step.length;
  }
  return store;
}

size_t unfinished_bytes(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const char byte = text[text.size() - back];
    if (continues_char(byte)) continue;
    const Form form = form_of(static_cast<unsigned char>(byte));
    if (form.length <= back) return 0;
    const Step step = step_at(text, text.size() - back);
    return !step.whole && step.length == back ? back : 0;
  }
  return 0;
}

size_t complete_size(std::string_view text) {
  constexpr int kMostBytes = 4;  // of a character: more U+FFFD are none that wait
  text.remove_suffix(unfinished_bytes(text));
  for (int i = 0; i < kMostBytes && text.ends_with(kReplacement); ++i)
    text.remove_suffix(kReplacement.size());
  return text.size();
}

}  // namespace lockstep::text
