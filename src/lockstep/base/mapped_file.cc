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
namespace {

// Closes the descriptor on every way out; the mapping outlives it.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

MappedFile MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe by mistake must not hang; regular files ignore it.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) {
    throw IoError(810, fmt::format("{} cannot be opened: {}; check the path and its permissions", path,
                                   std::strerror(errno)));
  }
  struct stat status {};
  if (fstat(file.fd, &status) != 0) {
    throw IoError(811, fmt::format("{} cannot be examined: {}", path, std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    throw DataError(812, fmt::format("{} is not a regular file; name a file", path));
  }
  MappedFile mapped;
  mapped.path_ = path;
  const size_t size = static_cast<size_t>(status.st_size);
  if (size == 0) return mapped;  // mmap refuses a length of 0
  void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
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
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace lockstep::base
