// The file system as saving needs it: a handful of calls, and no rename among them.
//
// Object stores and some mounts cannot rename a file in one step, so no save relies on it. Calls return 0, a
// number of bytes or a descriptor, or minus the error's number (-ENOSPC). Tests put a disk in its place that
// fails, writes less than asked or goes away at the n-th call.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep::checkpoint {

class Disk {
 public:
  virtual ~Disk() = default;
  virtual int create(const std::string& path) const;         // to write; replaces what stands there
  virtual int open_to_write(const std::string& path) const;  // what stands there already
  virtual int reserve(int file, int64_t bytes) const;        // room for all of it now, or -ENOSPC now
  virtual int64_t write(int file, std::span<const std::byte> bytes, int64_t at) const;
  // Asks for [at, at + bytes) to go to the disk; with `wait`, waits until it is there.
  virtual int flush(int file, int64_t at, int64_t bytes, bool wait) const;
  virtual int sync(int file) const;
  virtual int close(int file) const;
  virtual int sync_folder(const std::string& path) const;
  virtual int make_folder(const std::string& path) const;  // and those above it; one that stands is fine
  virtual int remove(const std::string& path) const;       // a file, or a folder with all in it; none is fine
};

const Disk& system_disk();

}  // namespace lockstep::checkpoint
