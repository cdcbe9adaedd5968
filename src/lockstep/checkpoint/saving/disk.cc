#include "lockstep/checkpoint/saving/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace lockstep::checkpoint {
namespace {

int or_error(int result) { return result < 0 ? -errno : result; }

}  // namespace

int Disk::create(const std::string& path) const {
  return or_error(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
}

int Disk::open_to_write(const std::string& path) const {
  return or_error(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
}

int Disk::reserve(int file, int64_t bytes) const {
  if (bytes == 0) return 0;
  if (const int result = or_error(::fallocate(file, 0, 0, bytes)); result != -EOPNOTSUPP && result != -ENOSYS)
    return result;
  return or_error(::ftruncate(file, bytes));  // the file system cannot promise: the writes will tell
}

int64_t Disk::write(int file, std::span<const std::byte> bytes, int64_t at) const {
  const ssize_t written = ::pwrite(file, bytes.data(), bytes.size(), at);
  return written < 0 ? -errno : written;
}

int Disk::flush(int file, int64_t at, int64_t bytes, bool wait) const {
  const unsigned flags =
      wait ? SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER
           : SYNC_FILE_RANGE_WRITE;
  const int result = or_error(::sync_file_range(file, at, bytes, flags));
  // Not every file system has it; the sync at the end then does all the work.
  return result == -ENOSYS || result == -EINVAL || result == -ESPIPE ? 0 : result;
}

// File systems that cannot sync such a thing say EINVAL; there is nothing to lose then.
int Disk::sync(int file) const {
  const int result = or_error(::fsync(file));
  return result == -EINVAL ? 0 : result;
}

int Disk::close(int file) const {
  const int result = or_error(::close(file));
  return result == -EINTR ? 0 : result;
}

int Disk::sync_folder(const std::string& path) const {
  const int folder = or_error(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder < 0) return folder;
  const int result = Disk::sync(folder);
  ::close(folder);
  return result;
}

int Disk::make_folder(const std::string& path) const {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return -error.value();
}

int Disk::remove(const std::string& path) const {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return -error.value();
}

const Disk& system_disk() {
  static const Disk disk;
  return disk;
}

}  // namespace lockstep::checkpoint
