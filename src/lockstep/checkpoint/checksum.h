// The checksum of a checkpoint's file: a hash over the hashes of its 4 MiB pieces.
//
// A writer adds pieces as they leave for the disk, so no file is read back to be summed; a reader may
// hash pieces in any order or on many threads and combine them. It finds damage, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::checkpoint {

class Checksum {
 public:
  static constexpr size_t kPiece = size_t{4} << 20;

  // The file's next bytes: kPiece of them, or fewer for the last piece.
  void add_piece(std::span<const std::byte> piece);
  std::string hex() const;  // 16 digits

 private:
  uint64_t hash_ = 0;
};

// Of a whole file in memory.
std::string checksum_of(std::span<const std::byte> bytes);

}  // namespace lockstep::checkpoint
