// Writes anywhere in an open file, and keeps few of its pages dirty: a save must neither fill the machine's
// memory with what waits for the disk nor leave it all to the sync at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/checkpoint/saving/disk.h"

namespace lockstep::checkpoint {

// An error that a call of the disk returned becomes IoError 807 (no room) or 808, naming the path.
void check_disk(int64_t result, const std::string& path, int64_t written = 0);

class RangeWriter {
 public:
  RangeWriter(const Disk& disk, int file, std::string path)
      : disk_(&disk), file_(file), path_(std::move(path)) {}
  void write(std::span<const std::byte> bytes, int64_t at);  // IoError 807, 808
  int64_t written() const { return written_; }

 private:
  struct Window {
    int64_t begin = 0, end = 0, bytes = 0;
  };
  void note(int64_t at, int64_t bytes);

  const Disk* disk_;
  int file_;
  std::string path_;
  int64_t written_ = 0;
  Window now_, before_;  // being filled; on its way to the disk
};

}  // namespace lockstep::checkpoint
