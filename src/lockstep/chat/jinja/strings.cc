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

std::vector<std::string_view> lines_of(std::string_view text, LineEnds ends) {
  constexpr std::string_view kEnds[] = {"\r\n", "\n",   "\r",       "\v",           "\f",          "\x1c",
                                        "\x1d", "\x1e", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const auto* end = std::find_if(std::begin(kEnds), std::end(kEnds),
                                   [&](std::string_view one) { return rest.starts_with(one); });
    if (end == std::end(kEnds)) {
      ++at;
      continue;
    }
    lines.push_back(text.substr(begin, at - begin + (ends == LineEnds::kept ? end->size() : 0)));
    at += end->size(), begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace lockstep::chat::jinja
