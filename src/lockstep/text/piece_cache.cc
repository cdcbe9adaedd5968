#include "lockstep/text/piece_cache.h"

#include "lockstep/base/hash.h"

namespace lockstep::text {

uint64_t PieceCache::hash_long(std::string_view piece) { return base::hash_text(piece) | 1; }

bool PieceCache::find_long(std::string_view piece, std::vector<int32_t>& out) {
  if (piece.size() > kLongestKey) return false;
  const uint64_t hash = hash_long(piece);
  const Long& slot = long_[hash >> 49];
  if (slot.hash != hash || slot.key_size != piece.size()) return false;
  if (std::memcmp(keys_.data() + slot.key, piece.data(), piece.size()) != 0) return false;
  out.insert(out.end(), tokens_.begin() + slot.tokens, tokens_.begin() + slot.tokens + slot.count);
  return true;
}

void PieceCache::keep_long(std::string_view piece, std::span<const int32_t> tokens) {
  if (piece.size() > kLongestKey) return;
  if (keys_.size() + tokens_.size() * sizeof(int32_t) > kArenaBytes) {
    keys_.clear();
    tokens_.clear();
    long_.assign(kLongSlots, {});
  }
  const uint64_t hash = hash_long(piece);
  Long& slot = long_[hash >> 49];
  slot = {.hash = hash,
          .key = static_cast<uint32_t>(keys_.size()),
          .tokens = static_cast<uint32_t>(tokens_.size()),
          .key_size = static_cast<uint32_t>(piece.size()),
          .count = static_cast<uint32_t>(tokens.size())};
  keys_.insert(keys_.end(), piece.begin(), piece.end());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

}  // namespace lockstep::text
