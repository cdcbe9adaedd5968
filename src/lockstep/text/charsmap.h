// SentencePiece's precompiled rules for characters ("nmt_nfkc"): a trie of what is replaced, and by what.
//
// The blob is a double array (darts-clone's units) and, behind it, texts that end with a zero. Every step
// into it is checked: a damaged one is refused or finds nothing, and never reads outside.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::text {

class Charsmap {
 public:
  static Charsmap from_base64(const std::string& text);  // DataError 241
  static Charsmap from_blob(std::string_view blob);      // the same; an empty one changes nothing

  struct Found {
    size_t size;  // bytes of the text that are replaced
    std::string_view by;
  };
  enum class Length : unsigned char { shortest, longest };
  std::optional<Found> find(std::string_view text, Length length) const;

  // As `tokenizers` applies it: to clusters of characters under 6 bytes, then to single ones.
  std::string by_grapheme(std::string_view text) const;
  bool empty() const { return units_.empty(); }

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace lockstep::text
