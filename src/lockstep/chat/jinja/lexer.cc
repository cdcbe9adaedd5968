#include "lockstep/chat/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "lockstep/chat/jinja/strings.h"
#include "lockstep/chat/jinja/value.h"
#include "lockstep/text/unicode.h"
#include "lockstep/text/utf8.h"

namespace lockstep::chat::jinja {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}

// Longer ones first: "//" before "/".
constexpr std::array<std::string_view, 26> kSymbols = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                       "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                       ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

// Line ends are \n, and one at the very end does not count.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> all() {
    bool at_line_start = true;
    while (at_ < source_.size()) {
      const size_t tag = next_tag();
      const std::string_view text = std::string_view(source_).substr(at_, tag - at_);
      if (tag == source_.size()) {
        push_data(text);
        break;
      }
      const char kind = source_[tag + 1];
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
      push_data(text_before(text, kind, sign, at_line_start));
      line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
      at_ = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
      if (kind == '#') {
        skip_comment();
      } else if (kind == '%' && is_raw()) {
        raw();
      } else {
        inside(kind);
      }
      at_line_start = at_ > 0 && source_[at_ - 1] == '\n';
    }
    push(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  size_t next_tag() const {
    for (size_t at = at_; at + 1 < source_.size(); ++at) {
      if (source_[at] == '{' && (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#'))
        return at;
    }
    return source_.size();
  }

  // What is left of the text in front of a tag.
  static std::string_view text_before(std::string_view text, char kind, char sign, bool at_line_start) {
    if (sign == '-') return right_stripped(text);
    if (sign == '+' || kind == '{') return text;
    const size_t newline = text.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (line == 0 && !at_line_start) return text;
    return stripped(text.substr(line)).empty() ? text.substr(0, line) : text;
  }

  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void push_data(std::string_view text) {
    if (!text.empty()) push(TokenKind::data, std::string(text));
  }
  [[noreturn]] void refuse(const std::string& why) const { fail(fmt::format("{} (line {})", why, line_)); }

  // Behind a tag's end: `-` takes all space away, a block or comment one line end, unless `+` keeps it.
  void after_tag(char sign, bool trims) {
    if (sign == '-') {
      const std::string_view rest = std::string_view(source_).substr(at_);
      move_to(at_ + (rest.size() - left_stripped(rest).size()));
    } else if (trims && sign != '+' && at_ < source_.size() && source_[at_] == '\n') {
      move_to(at_ + 1);
    }
  }
  void move_to(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  void skip_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) refuse("a comment {# is not closed");
    const char sign =
        end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : ' ';
    move_to(end + 2);
    after_tag(sign, true);
  }

  bool is_raw() const {
    std::string_view rest = left_stripped(std::string_view(source_).substr(at_));
    if (!rest.starts_with("raw")) return false;
    rest = left_stripped(rest.substr(3));
    return rest.starts_with("%}") || rest.starts_with("-%}");
  }
  void raw() {
    const size_t open = source_.find("%}", at_);
    const char sign = source_[open - 1];
    move_to(open + 2);
    after_tag(sign, false);  // the line's end behind {% raw %} stays, even where blocks take theirs away
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      size_t word = tag + 2;
      const char before = word < source_.size() ? source_[word] : ' ';
      if (before == '-' || before == '+') ++word;
      std::string_view rest = left_stripped(std::string_view(source_).substr(word));
      if (!rest.starts_with("endraw")) continue;
      rest = left_stripped(rest.substr(6));
      const char after = !rest.empty() && (rest[0] == '-' || rest[0] == '+') ? rest[0] : ' ';
      if (after != ' ') rest.remove_prefix(1);
      if (!rest.starts_with("%}")) continue;
      push_data(text_before(std::string_view(source_).substr(at_, tag - at_), '%', before,
                            at_ == 0 || source_[at_ - 1] == '\n'));
      move_to(source_.size() - rest.size() + 2);
      return after_tag(after, true);
    }
    refuse("{% raw %} is not closed by {% endraw %}");
  }

  void inside(char kind) {
    const bool statement = kind == '%';
    const std::string_view close = statement ? "%}" : "}}";
    push(statement ? TokenKind::statement : TokenKind::expression, "");
    std::vector<char> open;  // brackets: }} inside of {} is no end
    for (;;) {
      skip_space();
      const std::string_view rest = std::string_view(source_).substr(at_);
      if (rest.empty()) refuse(fmt::format("a tag {{{} is not closed by {}", kind, close));
      const char sign = rest[0] == '-' || rest[0] == '+' ? rest[0] : ' ';
      if (open.empty() && (rest.starts_with(close) || (sign != ' ' && rest.substr(1).starts_with(close)))) {
        push(statement ? TokenKind::statement_end : TokenKind::expression_end, "");
        at_ += close.size() + (sign == ' ' ? 0 : 1);
        return after_tag(sign, statement);
      }
      one_token(rest, open);
    }
  }
  void skip_space() {
    const std::string_view rest = std::string_view(source_).substr(at_);
    move_to(at_ + (rest.size() - left_stripped(rest).size()));
  }

  void one_token(std::string_view rest, std::vector<char>& open) {
    if (is_digit(rest[0])) return number(rest);
    if (rest[0] == '"' || rest[0] == '\'') return string(rest);
    if (begins_name(rest[0])) {
      size_t size = 1;
      while (size < rest.size() && (begins_name(rest[size]) || is_digit(rest[size]))) ++size;
      push(TokenKind::name, std::string(rest.substr(0, size)));
      at_ += size;
      return;
    }
    for (const std::string_view symbol : kSymbols) {
      if (!rest.starts_with(symbol)) continue;
      const char c = symbol[0];
      if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) refuse(fmt::format("a {} that nothing opened", c));
        open.pop_back();
      }
      push(TokenKind::symbol, std::string(symbol));
      at_ += symbol.size();
      return;
    }
    refuse(fmt::format("a character that no expression has: {}",
                       rest.substr(0, static_cast<size_t>(text::length_of_char(rest[0])))));
  }

  void number(std::string_view rest) {
    std::string digits;
    size_t size = 0;
    bool real = false;
    int base = 10;
    if (rest.size() > 2 && rest[0] == '0' &&
        std::string_view("xXoObB").find(rest[1]) != std::string_view::npos) {
      base = (rest[1] | 32) == 'x' ? 16 : (rest[1] | 32) == 'o' ? 8 : 2;
      size = 2;
    }
    for (; size < rest.size(); ++size) {
      const char c = rest[size];
      if (c == '_') continue;
      const bool in_base = is_digit(c) || (base == 16 && ((c | 32) >= 'a' && (c | 32) <= 'f'));
      const bool point =
          base == 10 && !real && c == '.' && size + 1 < rest.size() && is_digit(rest[size + 1]);
      const bool power = base == 10 && (c == 'e' || c == 'E') && size + 1 < rest.size() &&
                         (is_digit(rest[size + 1]) || (size + 2 < rest.size() && is_digit(rest[size + 2]) &&
                                                       (rest[size + 1] == '-' || rest[size + 1] == '+')));
      if (!in_base && !point && !power) break;
      digits += c;
      real = real || point || power;
      if (power && !is_digit(rest[size + 1])) digits += rest[++size];
    }
    push(real ? TokenKind::real : TokenKind::integer, digits);
    Token& token = tokens_.back();
    const char* end = digits.data() + digits.size();
    const std::from_chars_result read = real ? std::from_chars(digits.data(), end, token.real)
                                             : std::from_chars(digits.data(), end, token.integer, base);
    if (read.ec != std::errc() || read.ptr != end) refuse("a number that cannot be kept: " + digits);
    at_ += size;
  }

  void string(std::string_view rest) {
    size_t end = 1;
    while (end < rest.size() && rest[end] != rest[0]) end += rest[end] == '\\' ? 2 : 1;
    if (end >= rest.size()) refuse("a string is not closed");
    push(TokenKind::string, unescaped(rest.substr(1, end - 1)));
    move_to(at_ + end + 1);
  }

  // Python's escapes.
  std::string unescaped(std::string_view text) const {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view kNames = "ntrabfv\\'\"", kMeanings = "\n\t\r\a\b\f\v\\'\"";
      if (const size_t known = kNames.find(c); known != std::string_view::npos) {
        out += kMeanings[known];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t size = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        out += character(text.substr(i + 1, size), size, 16);
        i += size;
      } else if (c >= '0' && c <= '7') {
        size_t size = 1;
        while (size < 3 && i + size < text.size() && text[i + size] >= '0' && text[i + size] <= '7') ++size;
        out += character(text.substr(i, size), size, 8);
        i += size - 1;
      } else if (c == 'N') {
        refuse("characters by name, \\N{...}, are not supported in templates");
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }
  std::string character(std::string_view digits, size_t size, int base) const {
    uint32_t code = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    if (digits.size() != size || read.ptr != digits.data() + digits.size() || code > 0x10FFFF ||
        (code >= 0xD800 && code < 0xE000))
      refuse(fmt::format("an escape that is no character: {}", digits));
    std::string out;
    text::append_char(out, code);
    return out;
  }

  std::string source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(normalized(source)).all(); }

}  // namespace lockstep::chat::jinja
