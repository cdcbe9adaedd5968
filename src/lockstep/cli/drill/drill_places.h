// Ways to spoil a place for a drill: a damaged file, a full disk, a connection that is cut.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace lockstep::cli {

int64_t folder_bytes(const std::string& folder);  // of the files in it

// Flips a bit of the largest file; false: there is none.
bool damage_checkpoint(const std::string& folder, uint64_t random);

// A small file system of its own, in memory: a full disk that is nobody else's.
class SmallDisk {
 public:
  // Mounts it, with room for some checkpoints; problem() says why where that is not allowed.
  SmallDisk(std::string path, int64_t checkpoint_bytes);
  ~SmallDisk();  // and takes it away
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  const std::string& path() const { return path_; }
  const std::string& problem() const { return problem_; }
  bool fill(int64_t all_but) const;  // leaves so many bytes
  void make_room() const;

 private:
  std::string path_, problem_;
};

// Shuts the TCP connections that a process has to others of its run, from outside. Empty: done; else why not.
std::string drop_connections_of(pid_t process);

}  // namespace lockstep::cli
