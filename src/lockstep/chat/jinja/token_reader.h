// A template's tokens, one after the other, for those who know what may come next.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/chat/jinja/lexer.h"

namespace lockstep::chat::jinja {

class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  const Token& now() const { return tokens_[at_]; }
  const Token& then() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_symbol(std::string_view text) const { return is(TokenKind::symbol) && now().text == text; }
  bool is_word(std::string_view text) const { return is(TokenKind::name) && now().text == text; }
  bool skip_symbol(std::string_view text);
  bool skip_word(std::string_view text);
  void expect_symbol(std::string_view text);
  void expect_word(std::string_view text);
  std::string expect_name();
  [[noreturn]] void refuse(const std::string& why) const;  // with the line

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace lockstep::chat::jinja
