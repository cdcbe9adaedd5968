// A file's bytes, read-only, as memory: pages are read when touched and shared between processes.
//
// Opening fails with one sentence that names the file: IoError when the system refuses, DataError
// when the path is something that cannot be mapped (a folder, a device). An empty file is an empty
// span. Touching a mapped page that is gone, because somebody made the file shorter or its mount
// failed, ends the process (SIGBUS), as with every mapped file: what is read for hours goes through
// read(), which finds that out and says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::base {

class MappedFile {
 public:
  MappedFile() = default;
  static MappedFile open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  int64_t size() const { return static_cast<int64_t>(size_); }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Copies the bytes from `offset` on, which were there when the file was opened. DataError 817 if they no
  // longer are, IoError 817 if the system cannot read them.
  void read(int64_t offset, std::span<std::byte> out) const;
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int file_ = -1;
};

}  // namespace lockstep::base
