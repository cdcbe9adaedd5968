// A pattern that a tokenizer splits or replaces by, where no scanner is written for it: PCRE2, compiled once.
//
// Patterns come from two engines: Oniguruma (tokenizer.json; ^ and $ stand at every line) and Rust's
// (tiktoken). What they mean by \p{L}, \s, \w and \d is Unicode 16; PCRE2 here has an older one of its own.
// So these are written out, character by character, from our table before PCRE2 sees the pattern.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::text {

enum class Engine : unsigned char { oniguruma, rust };

class Pattern {
 public:
  // Fault 242 names what is wrong with it.
  Pattern(const std::string& pattern, Engine engine);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  // Every match, from left to right. Safe from several threads. DataError 242 where it gives up: patterns
  // that go back endlessly.
  void each_match(std::string_view text, const std::function<void(size_t begin, size_t end)>& found) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string source_;
};

// What PCRE2 is given (pattern_syntax.cc). Fault 242: it has no words for this.
std::string written_out(const std::string& pattern, Engine engine);

}  // namespace lockstep::text
