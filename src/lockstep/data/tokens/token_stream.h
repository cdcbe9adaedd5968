// A long sequence of tokens, read where it lies: files and buffers, one after the other.
//
// Tokens are little-endian words of 1, 2, 4 or 8 bytes. A stream is immutable once it is built, and
// copying out of it is safe from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/base/mapped_file.h"
#include "lockstep/store/remote_file.h"

namespace lockstep::data {

struct TokenSegment {
  // Keeps `bytes` alive, also when moved; or an object of a store, which has none in memory.
  std::variant<base::MappedFile, std::vector<std::byte>, std::shared_ptr<store::RemoteFile>> storage;
  std::span<const std::byte> bytes;  // the tokens
  int width = 1;                     // bytes a token
  std::string name = {};             // of a buffer: where it comes from
  int64_t skipped = 0;               // of an object: bytes before the tokens

  int64_t size() const;  // bytes
  int64_t tokens() const { return size() / width; }
  void announce(int64_t first_byte, int64_t bytes) const;  // they will be read: fetches them from a store
  // Copies bytes out. Of a file that has become shorter meanwhile: DataError 817.
  void read(int64_t first_byte, std::span<std::byte> out) const;
};
TokenSegment file_segment(base::MappedFile file, int64_t skipped_bytes, int width);
TokenSegment remote_segment(std::shared_ptr<store::RemoteFile> file, int64_t skipped_bytes, int width);
TokenSegment buffer_segment(std::vector<std::byte> buffer, int width = 1);

class TokenStream {
 public:
  void append(TokenSegment segment);

  int64_t size() const { return size_; }  // tokens
  // Fills `out` with the tokens from `first` on, which must exist. Tokens above 2^31 - 1 must have been
  // refused.
  void copy(int64_t first, std::span<int32_t> out) const;
  // These will be copied soon: what of them lies in a store is fetched, and kept until then.
  void announce(int64_t first, int64_t count) const;
  bool is_remote() const;  // a part of it lies in a store
  uint64_t hash() const;   // of the bytes; reads all of them, in parallel; of objects: of their versions

  const std::vector<TokenSegment>& segments() const { return segments_; }

 private:
  struct Piece {
    const TokenSegment& segment;
    int64_t first, count;  // tokens of the segment
  };
  std::vector<Piece> pieces(int64_t first, int64_t count) const;

  std::vector<TokenSegment> segments_;
  std::vector<int64_t> firsts_;  // of each segment: its first token's place in the stream
  int64_t size_ = 0;
};

}  // namespace lockstep::data
