#include "lockstep/chat/jinja/token_reader.h"

#include <fmt/format.h>

#include "lockstep/chat/jinja/value.h"

namespace lockstep::chat::jinja {

Token TokenReader::take() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenReader::skip_symbol(std::string_view text) { return is_symbol(text) && (take(), true); }
bool TokenReader::skip_word(std::string_view text) { return is_word(text) && (take(), true); }

void TokenReader::expect_symbol(std::string_view text) {
  if (!skip_symbol(text)) refuse(fmt::format("expected {}", text));
}
void TokenReader::expect_word(std::string_view text) {
  if (!skip_word(text)) refuse(fmt::format("expected {}", text));
}
std::string TokenReader::expect_name() {
  if (!is(TokenKind::name)) refuse("expected a name");
  return take().text;
}

void TokenReader::refuse(const std::string& why) const {
  const bool ends = is(TokenKind::statement_end) || is(TokenKind::expression_end) || is(TokenKind::end);
  fail(fmt::format("{}, found {} (line {})", why, ends ? "the end of the tag" : "\"" + now().text + "\"",
                   now().line));
}

}  // namespace lockstep::chat::jinja
