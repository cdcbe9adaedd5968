#include "lockstep/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::base {

MappedFile MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe by mistake must not hang; regular files ignore it.
  MappedFile mapped;
  mapped.path_ = path;
  mapped.file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (mapped.file_ < 0) {
    throw IoError(810, fmt::format("{} cannot be opened: {}; check the path and its permissions", path,
                                   std::strerror(errno)));
  }
  struct stat status {};
  if (fstat(mapped.file_, &status) != 0) {
    throw IoError(811, fmt::format("cannot stat {}: {}", path, std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    throw DataError(812, fmt::format("{} is not a regular file; expected a file", path));
  }
  const size_t size = static_cast<size_t>(status.st_size);
  if (size == 0) return mapped;  // mmap refuses a length of 0
  void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, mapped.file_, 0);
  if (memory == MAP_FAILED) {
    throw IoError(813, fmt::format("{} ({} bytes) cannot be mapped into memory: {}", path, status.st_size,
                                   std::strerror(errno)));
  }
  mapped.data_ = static_cast<const std::byte*>(memory);
  mapped.size_ = size;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
  if (file_ >= 0) close(file_);
}

void MappedFile::read(int64_t offset, std::span<std::byte> out) const {
  LS_ASSERT(offset >= 0 && offset + static_cast<int64_t>(out.size()) <= size());
  while (!out.empty()) {
    const ssize_t got = pread(file_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw IoError(817, fmt::format("{} cannot be read at byte {}: {}; check the disk or mount", path_,
                                     offset, std::strerror(errno)));
    }
    if (got == 0) {
      throw DataError(817, fmt::format("{} ends at byte {} but had {} bytes when it was opened: it was "
                                       "truncated during the run; restore it and run the same command again",
                                       path_, offset, size_));
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      file_(std::exchange(other.file_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(file_, other.file_);
  return *this;
}

}  // namespace lockstep::base
