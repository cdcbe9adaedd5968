#include "lockstep/checkpoint/file_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::checkpoint {
namespace {

[[noreturn]] void refuse(const std::string& path, int error, int64_t written) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    const char* why = error == ENOSPC   ? "the disk is full"
                      : error == EDQUOT ? "the disk quota is used up"
                                        : "the limit on a file's size is reached";
    throw base::IoError(807, fmt::format("{} cannot be written: {} after {}; free some space, lower "
                                         "checkpoint.keep, or put the run on another disk",
                                         path, why, base::human_bytes(static_cast<double>(written))));
  }
  throw base::IoError(808, fmt::format("{} cannot be written: {}; check the disk and its permissions, then "
                                       "run again: earlier checkpoints are untouched",
                                       path, std::strerror(error)));
}

// 0, or the error. File systems that cannot sync such a thing say EINVAL; there is nothing to lose then.
int sync_descriptor(int file) { return ::fsync(file) == 0 || errno == EINVAL ? 0 : errno; }

}  // namespace

void sync_folder(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) refuse(path, errno, 0);
  const int error = sync_descriptor(folder);
  ::close(folder);
  if (error != 0) refuse(path, error, 0);
}

FileWriter FileWriter::create(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) refuse(path, errno, 0);
  return FileWriter(path, file);
}

FileWriter::FileWriter(const std::string& path, int file) : path_(path), file_(file) {
  struct stat status {};
  remove_ = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);  // never a device
}

FileWriter::~FileWriter() {
  if (file_ >= 0) ::close(file_);
  if (remove_) ::unlink(path_.c_str());
}

void FileWriter::append(std::string_view text) { append(std::as_bytes(std::span(text))); }

void FileWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (rest_.empty() && bytes.size() >= Checksum::kPiece) {  // straight from the caller's memory
      write_piece(bytes.first(Checksum::kPiece));
      bytes = bytes.subspan(Checksum::kPiece);
      continue;
    }
    const size_t size = std::min(bytes.size(), Checksum::kPiece - rest_.size());
    rest_.insert(rest_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    bytes = bytes.subspan(size);
    if (rest_.size() == Checksum::kPiece) {
      write_piece(rest_);
      rest_.clear();
    }
  }
}

void FileWriter::write_piece(std::span<const std::byte> piece) {
  sum_.add_piece(piece);
  while (!piece.empty()) {
    const ssize_t written = ::write(file_, piece.data(), piece.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) refuse(path_, written < 0 ? errno : EIO, bytes_);
    bytes_ += written;
    piece = piece.subspan(static_cast<size_t>(written));
  }
}

FileSummary FileWriter::finish() {
  if (!rest_.empty()) write_piece(rest_);
  if (const int error = sync_descriptor(file_)) refuse(path_, error, bytes_);
  // Network file systems may report a full disk only now.
  if (::close(std::exchange(file_, -1)) != 0 && errno != EINTR) refuse(path_, errno, bytes_);
  const std::filesystem::path path(path_);
  sync_folder(path.has_parent_path() ? path.parent_path().string() : ".");
  remove_ = false;
  return {path.filename().string(), bytes_, sum_.hex()};
}

FileSummary write_text(const std::string& path, std::string_view text) {
  FileWriter file = FileWriter::create(path);
  file.append(text);
  return file.finish();
}

}  // namespace lockstep::checkpoint
