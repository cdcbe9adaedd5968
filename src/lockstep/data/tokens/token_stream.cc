#include "lockstep/data/tokens/token_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/round.h"
#include "lockstep/data/formats/parallel.h"

namespace lockstep::data {
namespace {

using Remote = std::shared_ptr<store::RemoteFile>;

constexpr int64_t kHashedPiece = int64_t{16} << 20;  // part of the hash's definition: do not change
constexpr int64_t kMostHashedPieces = 256;           // 4 GiB of a segment; this too

template <class Word>
void widen(const std::byte* from, std::span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Word word;
    std::memcpy(&word, from + i * sizeof word, sizeof word);
    out[i] = static_cast<int32_t>(word);
  }
}

void copy_tokens(const TokenSegment& segment, int64_t first, std::span<int32_t> out) {
  std::vector<std::byte> from(out.size() * static_cast<size_t>(segment.width));
  segment.read(first * segment.width, from);
  switch (segment.width) {
    case 1:
      return widen<uint8_t>(from.data(), out);
    case 2:
      return widen<uint16_t>(from.data(), out);
    case 4:
      return widen<uint32_t>(from.data(), out);
    default:
      return widen<uint64_t>(from.data(), out);
  }
}

// Of all pieces, or of so many that lie evenly from the first to the last: who starts on a terabyte does not
// wait until all of it was read. A file of another size has another hash in any case.
uint64_t hash_of(const TokenSegment& segment) {
  if (const auto* remote = std::get_if<Remote>(&segment.storage))
    return base::hash_combine(static_cast<uint64_t>(segment.width), (*remote)->hash());
  const int64_t size = segment.size();
  const int64_t all = base::divide_up(size, kHashedPiece);
  std::vector<uint64_t> pieces(static_cast<size_t>(std::min(all, kMostHashedPieces)));
  parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const int64_t last = static_cast<int64_t>(pieces.size()) - 1;
    const int64_t first = (all <= kMostHashedPieces ? i : i * (all - 1) / last) * kHashedPiece;
    std::vector<std::byte> piece(static_cast<size_t>(std::min(kHashedPiece, size - first)));
    segment.read(first, piece);
    pieces[static_cast<size_t>(i)] = base::hash_bytes(piece);
  });
  uint64_t hash = static_cast<uint64_t>(segment.width);
  if (all > kMostHashedPieces) hash = base::hash_combine(hash, static_cast<uint64_t>(size));
  for (const uint64_t piece : pieces) hash = base::hash_combine(hash, piece);
  return hash;
}

}  // namespace

int64_t TokenSegment::size() const {
  if (const auto* remote = std::get_if<Remote>(&storage)) return (*remote)->size() - skipped;
  return static_cast<int64_t>(bytes.size());
}

void TokenSegment::announce(int64_t first_byte, int64_t count) const {
  if (const auto* remote = std::get_if<Remote>(&storage)) (*remote)->announce(skipped + first_byte, count);
}

void TokenSegment::read(int64_t first_byte, std::span<std::byte> out) const {
  if (const auto* file = std::get_if<base::MappedFile>(&storage)) {
    file->read(bytes.data() - file->bytes().data() + first_byte, out);
  } else if (const auto* remote = std::get_if<Remote>(&storage)) {
    (*remote)->read(skipped + first_byte, out);
  } else {
    std::memcpy(out.data(), bytes.data() + first_byte, out.size());
  }
}

TokenSegment file_segment(base::MappedFile file, int64_t skipped_bytes, int width) {
  LS_ASSERT(skipped_bytes <= file.size());
  const auto bytes = file.bytes().subspan(static_cast<size_t>(skipped_bytes));
  return {.storage = std::move(file), .bytes = bytes, .width = width};
}

TokenSegment remote_segment(Remote file, int64_t skipped_bytes, int width) {
  return {.storage = std::move(file), .bytes = {}, .width = width, .skipped = skipped_bytes};
}

TokenSegment buffer_segment(std::vector<std::byte> buffer, int width) {
  const std::span<const std::byte> bytes(buffer);
  return {.storage = std::move(buffer), .bytes = bytes, .width = width};
}

void TokenStream::append(TokenSegment segment) {
  const int64_t tokens = segment.tokens();
  if (tokens == 0) return;
  firsts_.push_back(size_);
  size_ += tokens;
  segments_.push_back(std::move(segment));
}

std::vector<TokenStream::Piece> TokenStream::pieces(int64_t first, int64_t count) const {
  LS_ASSERT(first >= 0 && first + count <= size_);
  auto index =
      static_cast<size_t>(std::upper_bound(firsts_.begin(), firsts_.end(), first) - firsts_.begin()) - 1;
  std::vector<Piece> found;
  for (; count > 0; ++index) {
    const TokenSegment& segment = segments_[index];
    const int64_t within = first - firsts_[index];
    const int64_t here = std::min(count, segment.tokens() - within);
    found.push_back({segment, within, here});
    count -= here;
    first += here;
  }
  return found;
}

void TokenStream::copy(int64_t first, std::span<int32_t> out) const {
  for (const Piece& piece : pieces(first, static_cast<int64_t>(out.size()))) {
    copy_tokens(piece.segment, piece.first, out.first(static_cast<size_t>(piece.count)));
    out = out.subspan(static_cast<size_t>(piece.count));
  }
}

void TokenStream::announce(int64_t first, int64_t count) const {
  for (const Piece& piece : pieces(first, count)) {
    const int64_t width = piece.segment.width;
    piece.segment.announce(piece.first * width, piece.count * width);
  }
}

bool TokenStream::is_remote() const {
  return std::any_of(segments_.begin(), segments_.end(), [](const TokenSegment& segment) {
    return std::holds_alternative<Remote>(segment.storage);
  });
}

uint64_t TokenStream::hash() const {
  uint64_t hash = segments_.size();
  for (const TokenSegment& segment : segments_) hash = base::hash_combine(hash, hash_of(segment));
  return hash;
}

}  // namespace lockstep::data
