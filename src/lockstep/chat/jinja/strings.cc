#include "lockstep/chat/jinja/strings.h"

#include <algorithm>

#include "lockstep/chat/jinja/value.h"
#include "lockstep/text/unicode.h"
#include "lockstep/text/utf8.h"

namespace lockstep::chat::jinja {

// str.isspace(): Unicode's spaces and separators, and four control characters beside them.
bool is_space(std::string_view character) {
  const char* at = character.data();
  const uint32_t code = text::next_char(at);
  return (code >= 0x1C && code <= 0x1F) || (text::Unicode::table().bits(code) & text::kSpace) != 0;
}

namespace {

bool is_one_of(std::string_view character, const std::string_view* characters) {
  if (characters == nullptr) return is_space(character);
  const std::vector<std::string_view> all = characters_of(*characters);
  return std::find(all.begin(), all.end(), character) != all.end();
}

}  // namespace

std::string_view left_stripped(std::string_view text, const std::string_view* characters) {
  while (!text.empty()) {
    const size_t size = std::min<size_t>(static_cast<size_t>(text::length_of_char(text[0])), text.size());
    if (!is_one_of(text.substr(0, size), characters)) break;
    text.remove_prefix(size);
  }
  return text;
}

std::string_view right_stripped(std::string_view text, const std::string_view* characters) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text::continues_char(text[begin])) --begin;
    if (!is_one_of(text.substr(begin), characters)) break;
    text = text.substr(0, begin);
  }
  return text;
}

}  // namespace lockstep::chat::jinja
