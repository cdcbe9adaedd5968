// What pieces of text became: a bounded memory of one thread, in front of a model.
//
// Most words of a text have been seen before. Short ones lie in slots of 32 bytes, key and tokens together,
// so that one line of the processor's cache answers; longer ones in a table with an arena that is emptied
// when it is full. Entries replace each other: a corpus with endless new words costs time, never memory, and
// never a wrong token.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::text {

class PieceCache {
 public:
  PieceCache() : short_(kShortSlots), long_(kLongSlots) {}

  // Appends the tokens of a piece that is known. `readable`: how many bytes may be read from piece.data() on.
  bool find(std::string_view piece, size_t readable, std::vector<int32_t>& out) {
    if (piece.size() > kShortKey) return find_long(piece, out);
    load_key(piece, readable);
    const Short& slot = short_[place_];
    if (slot.low != low_ || slot.high != high_) return find_long(piece, out);
    out.insert(out.end(), slot.tokens, slot.tokens + slot.count);
    return true;
  }
  // Right after find() said no for the same piece.
  void keep(std::string_view piece, std::span<const int32_t> tokens) {
    if (piece.size() > kShortKey || tokens.size() > kShortTokens) return keep_long(piece, tokens);
    Short& slot = short_[place_];
    slot.low = low_;
    slot.high = high_;
    slot.count = static_cast<uint32_t>(tokens.size());
    std::memcpy(slot.tokens, tokens.data(), tokens.size_bytes());
  }

 private:
  static constexpr size_t kShortKey = 15, kShortTokens = 3, kShortSlots = size_t{1} << 16;
  static constexpr size_t kLongSlots = size_t{1} << 15, kLongestKey = 512, kArenaBytes = size_t{16} << 20;

  struct Short {
    uint64_t low = 0, high = 0;  // the last byte is the key's length + 1: 0 is no key
    int32_t tokens[kShortTokens] = {};
    uint32_t count = 0;
  };
  struct Long {
    uint64_t hash = 0;
    uint32_t key = 0, tokens = 0;  // places in the arenas
    uint32_t key_size = 0, count = 0;
  };

  static uint64_t mix(uint64_t a, uint64_t b) {
    const __uint128_t product = static_cast<__uint128_t>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
    return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
  }
  void load_key(std::string_view piece, size_t readable) {
    uint64_t words[2] = {0, 0};
    const size_t size = piece.size();
    if (readable >= 16) {
      std::memcpy(words, piece.data(), 16);
      const int bits = static_cast<int>(size % 8) * 8;
      if (size < 8) {
        words[0] &= (uint64_t{1} << bits) - 1;
        words[1] = 0;
      } else {
        words[1] &= (uint64_t{1} << bits) - 1;
      }
    } else {
      std::memcpy(words, piece.data(), size);
    }
    low_ = words[0];
    high_ = words[1] | uint64_t{size + 1} << 56;
    place_ = mix(low_, high_) >> 48;
  }
  static uint64_t hash_long(std::string_view piece);
  bool find_long(std::string_view piece, std::vector<int32_t>& out);
  void keep_long(std::string_view piece, std::span<const int32_t> tokens);

  std::vector<Short> short_;
  std::vector<Long> long_;
  std::vector<char> keys_;
  std::vector<int32_t> tokens_;
  uint64_t low_ = 0, high_ = 0, place_ = 0;  // of the piece that was looked for last
};

}  // namespace lockstep::text
