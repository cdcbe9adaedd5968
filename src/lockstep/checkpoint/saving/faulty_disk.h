// A disk that goes wrong when a test wants it to. For tests.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lockstep/checkpoint/saving/disk.h"

namespace lockstep::checkpoint {

// Counts its calls; from the n-th on, something happens.
class FaultyDisk : public Disk {
 public:
  enum class Fault : uint8_t {
    none,
    full,      // -ENOSPC, for this call and all later ones that need room
    broken,    // -EIO once
    gone,      // every later call is refused, as when a mount goes away
    slips,     // writes take half of what they are given, from the beginning
    power_cut  // the process stops there, and what was not synced is lost
  };
  struct PowerCut {};

  FaultyDisk() = default;
  FaultyDisk(Fault fault, int64_t call) : fault_(fault), call_(call) {}
  int64_t calls() const { return calls_; }

  int create(const std::string& path) const override {
    if (const int error = next()) return error;
    const bool fresh = !std::filesystem::exists(path);
    const int file = Disk::create(path);
    if (file >= 0 && fresh) forgettable(path);
    return note(file, path);
  }
  int open_to_write(const std::string& path) const override {
    if (const int error = next()) return error;
    return note(Disk::open_to_write(path), path);
  }
  int reserve(int file, int64_t bytes) const override {
    if (const int error = next()) return error;
    return Disk::reserve(file, bytes);
  }
  int64_t write(int file, std::span<const std::byte> bytes, int64_t at) const override {
    if (const int error = next()) return error;
    if (fault_ == Fault::slips) bytes = bytes.first((bytes.size() + 1) / 2);
    const int64_t written = Disk::write(file, bytes, at);
    const std::lock_guard lock(mutex_);
    if (written > 0) unsynced_[names_[file]].push_back({at, written});
    return written;
  }
  int flush(int file, int64_t at, int64_t bytes, bool wait) const override {
    if (const int error = next()) return error;
    return Disk::flush(file, at, bytes, wait);
  }
  int sync(int file) const override {
    if (const int error = next()) return error;
    const std::lock_guard lock(mutex_);
    unsynced_.erase(names_[file]);
    return 0;  // in earnest it would cost the tests seconds
  }
  int sync_folder(const std::string& path) const override {
    if (const int error = next()) return error;
    const std::lock_guard lock(mutex_);
    std::erase_if(unsynced_names_,
                  [&](const std::string& name) { return std::filesystem::path(name).parent_path() == path; });
    return 0;
  }
  int make_folder(const std::string& path) const override {
    if (const int error = next()) return error;
    for (std::filesystem::path at = path; !at.empty() && !std::filesystem::exists(at); at = at.parent_path())
      forgettable(at.string());
    return Disk::make_folder(path);
  }
  int remove(const std::string& path) const override {
    const int error = next();
    if (error && fault_ != Fault::full) return error;
    const std::lock_guard lock(mutex_);
    std::erase_if(unsynced_names_,
                  [&](const std::string& name) { return name == path || name.starts_with(path + "/"); });
    return Disk::remove(path);
  }

  // What a power cut leaves: bytes that were never synced are anything, and a file or folder whose name was
  // not synced in the folder that holds it is gone, however well its own bytes were.
  void lose_unsynced() const {
    const std::lock_guard lock(mutex_);
    for (const std::string& name : unsynced_names_) std::filesystem::remove_all(name);
    for (const auto& [path, ranges] : unsynced_) {
      const int file = ::open(path.c_str(), O_WRONLY);
      if (file < 0) continue;
      for (const auto& [at, bytes] : ranges) {
        const std::string junk(static_cast<size_t>(bytes), '\xee');
        if (::pwrite(file, junk.data(), junk.size(), at) < 0) break;
      }
      ::close(file);
    }
  }

 private:
  void forgettable(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    unsynced_names_.insert(name);
  }
  int note(int file, const std::string& path) const {
    const std::lock_guard lock(mutex_);
    if (file >= 0) names_[file] = path;
    return file;
  }
  int next() const {
    const int64_t call = calls_++;
    if (fault_ == Fault::none || fault_ == Fault::slips || call < call_) return 0;
    if (fault_ == Fault::power_cut && call == call_) throw PowerCut{};
    if (fault_ == Fault::power_cut) return -EIO;  // nothing that still runs reaches the disk
    if (fault_ == Fault::full) return -ENOSPC;
    if (fault_ == Fault::gone) return -ENOTCONN;
    return call == call_ ? -EIO : 0;
  }

  const Fault fault_ = Fault::none;
  const int64_t call_ = 0;
  mutable std::atomic<int64_t> calls_{0};
  mutable std::mutex mutex_;
  mutable std::map<int, std::string> names_;
  mutable std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> unsynced_;
  mutable std::set<std::string> unsynced_names_;  // made, and not yet synced in their folder
};

}  // namespace lockstep::checkpoint
