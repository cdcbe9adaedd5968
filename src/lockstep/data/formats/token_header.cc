#include "lockstep/data/formats/token_header.h"

#include <cstring>

namespace lockstep::data {
namespace {

constexpr size_t kTag = 16, kHash = 17;    // words
constexpr int32_t kTagValue = 0x4B54534C;  // "LSTK"

}  // namespace

TokenHeader make_token_header(const TokenFormat& format, int32_t count, uint64_t tokenizer) {
  TokenHeader header{};
  header[0] = format.magic;
  header[1] = format.version;
  header[2] = count;
  header[kTag] = kTagValue;
  std::memcpy(&header[kHash], &tokenizer, sizeof tokenizer);
  return header;
}

std::optional<uint64_t> tokenizer_of(std::span<const std::byte> file) {
  if (file.size() < sizeof(TokenHeader)) return std::nullopt;
  TokenHeader header;
  std::memcpy(header.data(), file.data(), sizeof header);
  bool known = false;
  for (const TokenFormat& format : kTokenFormats) known = known || header[0] == format.magic;
  if (!known || header[kTag] != kTagValue) return std::nullopt;
  uint64_t hash;
  std::memcpy(&hash, &header[kHash], sizeof hash);
  return hash;
}

}  // namespace lockstep::data
