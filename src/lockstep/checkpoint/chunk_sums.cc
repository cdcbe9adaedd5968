#include "lockstep/checkpoint/chunk_sums.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/checkpoint/crc32c.h"

namespace lockstep::checkpoint {

int64_t chunk_size(int64_t index, int64_t file_bytes) {
  return std::min(kChunkBytes, file_bytes - index * kChunkBytes);
}

void ChunkSums::add(int64_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t chunk = at / kChunkBytes, begin = at % kChunkBytes;
    const int64_t size = std::min(kChunkBytes - begin, static_cast<int64_t>(bytes.size()));
    const uint32_t own = crc_remainder(bytes.first(static_cast<size_t>(size)));
    merge(chunk, crc_after_zeros(own, chunk_size(chunk, file_bytes_) - begin - size));
    bytes = bytes.subspan(static_cast<size_t>(size));
    at += size;
  }
}

std::vector<uint32_t> ChunkSums::finish() const {
  std::vector<uint32_t> sums;
  for (int64_t chunk = 0; chunk * kChunkBytes < file_bytes_; ++chunk) {
    const auto found = remainders_.find(chunk);
    sums.push_back(
        crc_of_remainder(found == remainders_.end() ? 0 : found->second, chunk_size(chunk, file_bytes_)));
  }
  return sums;
}

std::string sums_text(const std::vector<uint32_t>& sums) {
  std::string text;
  text.reserve(sums.size() * 8);
  for (const uint32_t sum : sums) fmt::format_to(std::back_inserter(text), "{:08x}", sum);
  return text;
}

bool read_sums(const std::string& text, std::vector<uint32_t>& sums) {
  if (text.size() % 8 != 0) return false;
  sums.assign(text.size() / 8, 0);
  for (size_t k = 0; k < text.size(); ++k) {
    const char c = text[k];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;
    sums[k / 8] = sums[k / 8] << 4 | static_cast<uint32_t>(digit);
  }
  return true;
}

}  // namespace lockstep::checkpoint
