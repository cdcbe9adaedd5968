// Tokens that are looked for in the text itself, before anything cuts it: <|im_end|>, <s>, [MASK].
//
// The leftmost counts, of those that begin at one place the longest. Some are looked for in the text as it
// came, the others after it was normalized; some take the white space beside them, some count only between
// words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/unicode.h"

namespace lockstep::text {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false, single_word = false, lstrip = false, rstrip = false, normalized = false;
};

// A part of a text: a token, or text between tokens (id -1).
struct Section {
  size_t begin, end;
  int32_t id;
};

class TokenFinder {
 public:
  // Tokens that are added later win where two are written alike.
  void add(std::string_view written, const AddedToken& token);
  bool empty() const { return tokens_.empty(); }
  // `specials` = false: special ones are text.
  void split(std::string_view text, bool specials, std::vector<Section>& out) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> next;
    int32_t token = -1;  // of tokens_
  };
  struct Match {
    size_t begin, end;
    int32_t token;
  };
  bool find(std::string_view text, size_t from, Match& match) const;
  bool between_words(std::string_view text, const Match& match) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  bool first_bytes_[256] = {};
  int only_first_ = -1;  // the one first byte of all tokens; -2: there are several
};

}  // namespace lockstep::text
