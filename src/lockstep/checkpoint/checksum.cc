#include "lockstep/checkpoint/checksum.h"

#include <algorithm>

#include "lockstep/base/hash.h"

namespace lockstep::checkpoint {

void Checksum::add_piece(std::span<const std::byte> piece) {
  hash_ = base::hash_combine(hash_, base::hash_bytes(piece));
}

std::string Checksum::hex() const { return base::hex64(hash_); }

std::string checksum_of(std::span<const std::byte> bytes) {
  Checksum sum;
  while (!bytes.empty()) {
    const size_t size = std::min(bytes.size(), Checksum::kPiece);
    sum.add_piece(bytes.first(size));
    bytes = bytes.subspan(size);
  }
  return sum.hex();
}

}  // namespace lockstep::checkpoint
