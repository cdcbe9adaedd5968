// UTF-8 by hand: characters of text that is known to be whole, and the repair of text that is not.
//
//     std::string store;
//     std::string_view text = whole_utf8(bytes, store);   // `bytes` itself where nothing is broken
//     for (const char* at = begin; at < end;) use(next_char(at));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::text {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The character at `at`, which moves behind it. The text must be whole.
inline uint32_t next_char(const char*& at) {
  const auto* byte = reinterpret_cast<const unsigned char*>(at);
  if (byte[0] < 0x80) return at += 1, byte[0];
  if (byte[0] < 0xE0) return at += 2, (byte[0] & 0x1Fu) << 6 | (byte[1] & 0x3Fu);
  if (byte[0] < 0xF0) return at += 3, (byte[0] & 0x0Fu) << 12 | (byte[1] & 0x3Fu) << 6 | (byte[2] & 0x3Fu);
  return at += 4,
         (byte[0] & 0x07u) << 18 | (byte[1] & 0x3Fu) << 12 | (byte[2] & 0x3Fu) << 6 | (byte[3] & 0x3Fu);
}

inline bool continues_char(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The beginning of the character before `at`.
inline const char* char_before(const char* at) {
  do --at;
  while (continues_char(*at));
  return at;
}

inline int length_of_char(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

void append_char(std::string& text, uint32_t code);

// Bytes from `text` on that are whole UTF-8; all of them where nothing is broken.
size_t whole_prefix(std::string_view text);

// The text with U+FFFD in the place of what is broken, as Python's decode(errors="replace") has it: one for
// each longest beginning of a character. Text that is whole is given back as it is, and `store` not used.
std::string_view whole_utf8(std::string_view text, std::string& store);

// Bytes at the end that begin a character which is not complete: 0 to 3.
size_t unfinished_bytes(std::string_view text);

// How much of a text that is still growing can be shown: without half a character at its end, which the next
// token may complete, be it as bytes or as U+FFFD.
size_t complete_size(std::string_view text);

}  // namespace lockstep::text
