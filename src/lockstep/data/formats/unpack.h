// Compressed files, unpacked while they are read: gzip (several members too) and zstd (several frames too).
//
// Memory does not depend on the file: a window and two buffers. Bytes that cannot be unpacked, and a file
// that ends too early, are a DataError 273 with the place in the compressed file.
//
//     const auto source = open_packed("a.jsonl.zst");
//     while (const size_t count = source->read(buffer)) use(buffer.first(count));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

class PackedFile {
 public:
  virtual ~PackedFile() = default;
  // Fills the beginning of `out` and says how much of it; 0 only at the end.
  virtual size_t read(std::span<char> out) = 0;
  virtual int64_t taken() const = 0;  // bytes of the compressed file so far
};

// "gzip", "zstd"; empty: neither.
std::string_view packing_of(std::string_view first_bytes);
bool is_packed(const std::string& file);  // by its first bytes
std::unique_ptr<PackedFile> open_packed(const std::string& file);

// "a.jsonl" of "a.jsonl.gz"; other names as they are.
std::string without_packing(const std::string& name);
// The endings, with those that their compressed files have: ".csv", ".csv.gz", ".csv.zst".
std::vector<std::string> with_packing(const std::vector<std::string>& endings);

// The first bytes of a file, unpacked where it is compressed; fewer where there are no more.
std::string first_bytes_of(const std::string& file, size_t most);
// DataError 236 for text of two bytes a character, as PowerShell and Excel write it. Only of files that are
// text: small tokens look the same.
void refuse_utf16(const std::string& file, std::string_view first_bytes);

}  // namespace lockstep::data
