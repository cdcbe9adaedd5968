#include "lockstep/checkpoint/saving/file_writer.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lockstep/checkpoint/crc32c.h"

namespace lockstep::checkpoint {
namespace {

constexpr auto kChunk = static_cast<size_t>(kChunkBytes);

}  // namespace

void sync_folder(const std::string& path, const Disk& disk) { check_disk(disk.sync_folder(path), path); }

FileWriter FileWriter::create(const std::string& path, const Disk& disk) {
  const int file = disk.create(path);
  check_disk(file, path);
  return FileWriter(path, file, disk);
}

FileWriter::FileWriter(const std::string& path, int file, const Disk& disk)
    : path_(path), disk_(disk), file_(file), writer_(disk, file, path) {
  struct stat status {};
  remove_ = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);  // never a device
}

FileWriter::~FileWriter() {
  if (file_ >= 0) disk_.close(file_);
  if (remove_) disk_.remove(path_);
}

void FileWriter::append(std::string_view text) { append(std::as_bytes(std::span(text))); }

void FileWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (rest_.empty() && bytes.size() >= kChunk) {  // straight from the caller's memory
      write_chunk(bytes.first(kChunk));
      bytes = bytes.subspan(kChunk);
      continue;
    }
    const size_t size = std::min(bytes.size(), kChunk - rest_.size());
    rest_.insert(rest_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    bytes = bytes.subspan(size);
    if (rest_.size() == kChunk) {
      write_chunk(rest_);
      rest_.clear();
    }
  }
}

void FileWriter::write_chunk(std::span<const std::byte> chunk) {
  sums_.push_back(crc32c(chunk));
  writer_.write(chunk, writer_.written());
}

FileSummary FileWriter::finish() {
  if (!rest_.empty()) write_chunk(rest_);
  check_disk(disk_.sync(file_), path_, writer_.written());
  // Network file systems may report a full disk only now.
  check_disk(disk_.close(std::exchange(file_, -1)), path_, writer_.written());
  const std::filesystem::path path(path_);
  sync_folder(path.has_parent_path() ? path.parent_path().string() : ".", disk_);
  remove_ = false;
  return {path.filename().string(), writer_.written(), sums_};
}

FileSummary write_text(const std::string& path, std::string_view text, const Disk& disk) {
  FileWriter file = FileWriter::create(path, disk);
  file.append(text);
  return file.finish();
}

}  // namespace lockstep::checkpoint
