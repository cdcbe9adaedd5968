#include "lockstep/cli/drill/drill_places.h"
#include "lockstep/base/number.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace lockstep::cli {

namespace fs = std::filesystem;

int64_t folder_bytes(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    if (entry.is_regular_file(error)) bytes += static_cast<int64_t>(entry.file_size(error));
  }
  return bytes;
}

bool damage_checkpoint(const std::string& folder, uint64_t random) {
  std::string largest;
  int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto size = static_cast<int64_t>(entry.file_size(error));
    if (entry.is_regular_file(error) && size > bytes) bytes = size, largest = entry.path();
  }
  const int file = ::open(largest.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  // In the second half: behind the names, among the numbers.
  const auto at =
      static_cast<off_t>(bytes / 2 + static_cast<int64_t>(random % static_cast<uint64_t>(bytes / 2)));
  char byte = 0;
  bool done = ::pread(file, &byte, 1, at) == 1;
  byte = static_cast<char>(byte ^ (1 << (random >> 60 & 7)));
  done = done && ::pwrite(file, &byte, 1, at) == 1;
  ::close(file);
  return done;
}

SmallDisk::SmallDisk(std::string path, int64_t checkpoint_bytes) : path_(std::move(path)) {
  std::error_code error;
  fs::create_directories(path_, error);
  const std::string size = fmt::format("size={}m,mode=0700", (checkpoint_bytes * 6 >> 20) + 32);
  if (::mount("lockstep-drill", path_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, size.c_str()) != 0)
    problem_ = fmt::format("cannot mount a small disk here ({})", std::strerror(errno));
}

SmallDisk::~SmallDisk() {
  if (problem_.empty()) ::umount2(path_.c_str(), MNT_DETACH);
  ::rmdir(path_.c_str());
}

// A save may be writing at the same moment: what was free a moment ago is asked for again until it is given.
bool SmallDisk::fill(int64_t all_but) const {
  const int file = ::open((path_ + "/filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return false;
  bool full = false;
  for (int attempt = 0; attempt < 100 && !full; ++attempt) {
    struct statvfs now {};
    if (attempt > 0) ::usleep(10000);
    if (::statvfs(path_.c_str(), &now) != 0) break;
    const int64_t free = static_cast<int64_t>(now.f_bavail) * static_cast<int64_t>(now.f_bsize);
    full = free <= all_but || ::posix_fallocate(file, 0, free - all_but) == 0;
  }
  ::close(file);
  return full;
}

void SmallDisk::make_room() const { ::unlink((path_ + "/filler").c_str()); }

namespace {

int port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

// Where its store is, from its environment: that connection is the launcher's and no peer's.
int store_port(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  for (std::string one; std::getline(file, one, '\0');) {
    if (one.starts_with("LOCKSTEP_STORE=")) return base::parse_number<int>(std::string_view(one).substr(one.rfind(':') + 1)).value_or(0);
  }
  return 0;
}

}  // namespace

std::string drop_connections_of(pid_t process) {
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (handle < 0) return fmt::format("process {} cannot be reached: {}", process, std::strerror(errno));
  const int store = store_port(process);
  int dropped = 0, refused = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", process), error)) {
    const int number = base::parse_number<int>(entry.path().filename().string()).value_or(-1);
    const int mine = static_cast<int>(::syscall(SYS_pidfd_getfd, handle, number, 0));
    if (mine < 0) {
      refused = errno;
      continue;
    }
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(mine, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && port_of(peer) != 0 &&
        port_of(peer) != store) {
      ::shutdown(mine, SHUT_RDWR);
      ++dropped;
    }
    ::close(mine);
  }
  ::close(handle);
  if (dropped > 0) return "";
  return refused != 0
             ? fmt::format("cannot close connections of another process here ({})", std::strerror(refused))
             : "the ranks have no connections to close";
}

}  // namespace lockstep::cli
