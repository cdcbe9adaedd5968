#include "lockstep/text/charsmap.h"

#include <cstring>

#include "lockstep/text/base64.h"
#include "lockstep/text/json_part.h"
#include "lockstep/text/unicode.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
uint32_t label_of(uint32_t unit) { return unit & ((1u << 31) | 0xFF); }
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & ((1u << 31) - 1); }

constexpr size_t kShortCluster = 6;  // bytes: longer ones are taken character by character

// Whether a character stays with the one before it (the common part of Unicode's grapheme clusters).
bool extends(uint32_t code) {
  const uint32_t bits = Unicode::table().bits(code);
  return (bits & kMark) || code == 0x200C || code == 0x200D || code == 0xFF9E || code == 0xFF9F ||
         code == 0xE33 || code == 0xEB3 || (code >= 0x1F3FB && code <= 0x1F3FF);
}
bool stands_alone(uint32_t code) {
  const uint32_t category = Unicode::table().bits(code) & kCategoryMask;
  return category == kCc || category == kZl || category == kZp ||
         (category == kCf && code != 0x200C && code != 0x200D);
}

size_t cluster_size(std::string_view text) {
  const char *begin = text.data(), *end = begin + text.size(), *at = begin;
  const uint32_t first = next_char(at);
  if (first == '\r' && at < end && *at == '\n') return 2;
  if (stands_alone(first)) return static_cast<size_t>(at - begin);
  while (at < end) {
    const char* before = at;
    if (extends(next_char(at))) continue;
    at = before;
    break;
  }
  return static_cast<size_t>(at - begin);
}

}  // namespace

Charsmap Charsmap::from_base64(const std::string& text) {
  const std::optional<std::string> blob = text::from_base64(text);
  if (!blob) refuse("its precompiled_charsmap is no base64");
  return from_blob(*blob);
}

Charsmap Charsmap::from_blob(std::string_view blob) {
  Charsmap map;
  if (blob.empty()) return map;
  uint32_t size = 0;
  if (blob.size() < sizeof size) refuse("its precompiled charsmap is truncated");
  std::memcpy(&size, blob.data(), sizeof size);
  if (size % 4 != 0 || size > blob.size() - sizeof size)
    refuse("its precompiled charsmap is truncated or damaged");
  map.units_.resize(size / 4);
  std::memcpy(map.units_.data(), blob.data() + sizeof size, size);
  map.texts_ = blob.substr(sizeof size + size);
  return map;
}

std::optional<Charsmap::Found> Charsmap::find(std::string_view text, Length length) const {
  std::optional<Found> found;
  if (units_.empty()) return found;
  uint32_t place = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    place ^= byte;
    if (place >= units_.size() || label_of(units_[place]) != byte) break;
    const uint32_t unit = units_[place];
    place ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (place >= units_.size()) break;
    const size_t at = value_of(units_[place]);
    if (at >= texts_.size()) break;
    found = Found{i + 1,
                  std::string_view(texts_).substr(at, std::min(texts_.find('\0', at), texts_.size()) - at)};
    if (length == Length::shortest) break;
  }
  return found;
}

std::string Charsmap::by_grapheme(std::string_view text) const {
  std::string out;
  while (!text.empty()) {
    const size_t size = cluster_size(text);
    std::string_view cluster = text.substr(0, size);
    text.remove_prefix(size);
    if (size < kShortCluster) {
      if (const auto found = find(cluster, Length::shortest)) {
        out += found->by;
        continue;
      }
    }
    while (!cluster.empty()) {
      const auto letter = cluster.substr(0, static_cast<size_t>(length_of_char(cluster[0])));
      const auto found = find(letter, Length::shortest);
      out += found ? found->by : letter;
      cluster.remove_prefix(letter.size());
    }
  }
  return out;
}

}  // namespace lockstep::text
