// Checksums of a file, one for each chunk of 1 MiB: fine enough to check the parts that a rank reads.
//
// A writer adds what it wrote, wherever that lies; sums of several writers of one file are merged. Chunks
// that nobody touched are not in the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

constexpr int64_t kChunkBytes = int64_t{1} << 20;

// Bytes of the chunk that starts at index * kChunkBytes in a file of so many bytes.
int64_t chunk_size(int64_t index, int64_t file_bytes);

class ChunkSums {
 public:
  explicit ChunkSums(int64_t file_bytes) : file_bytes_(file_bytes) {}
  void add(int64_t at, std::span<const std::byte> bytes);  // that lie at this byte of the file
  // CRC32C of each chunk, once every byte was added by someone.
  std::vector<uint32_t> finish() const;

  // By chunk, for sending and merging: the remainder of what was added, zeros elsewhere.
  const std::map<int64_t, uint32_t>& remainders() const { return remainders_; }
  void merge(int64_t chunk, uint32_t remainder) { remainders_[chunk] ^= remainder; }
  int64_t file_bytes() const { return file_bytes_; }

 private:
  int64_t file_bytes_;
  std::map<int64_t, uint32_t> remainders_;
};

// As text, eight digits a chunk, and back; false when the text is something else.
std::string sums_text(const std::vector<uint32_t>& sums);
bool read_sums(const std::string& text, std::vector<uint32_t>& sums);

}  // namespace lockstep::checkpoint
