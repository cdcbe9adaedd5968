// A template's source as tokens. Text between tags has been cut already as the tags ask for it: `-` and `+` in them,
// and Hugging Face's settings trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::chat::jinja {

enum class TokenKind {
  data,            // text between tags
  statement,       // {%
  statement_end,   // %}
  expression,      // {{
  expression_end,  // }}
  name,
  string,
  integer,
  real,
  symbol,  // an operator or bracket
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // of a string: what it stands for; of a symbol: itself
  int line = 1;
  int64_t integer = 0;
  double real = 0;
};

// Failure: a tag that is not closed, a character that no expression has.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace lockstep::chat::jinja
