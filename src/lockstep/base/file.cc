#include "lockstep/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::base {
namespace {

std::string reason(int error) {
  switch (error) {
    case ENOENT:
      return "no such file or folder";
    case EACCES:
      return "permission denied";
    case ENOSPC:
      return "no space left on disk";
    case EDQUOT:
      return "the disk quota is used up";
    case EROFS:
      return "the file system is read-only";
    case ENOTDIR:
      return "a component of the path is a file, not a folder";
    default:
      return std::strerror(error);
  }
}

[[noreturn]] void refuse_write(const std::string& path, const std::string& why) {
  throw IoError(802, fmt::format("{} cannot be written: {}", path, why));
}
[[noreturn]] void refuse_write(const std::string& path, int error) { refuse_write(path, reason(error)); }

// 0, or the error.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Where the last whole line of the file ends. Looks back from the end in pieces.
off_t end_of_last_line(int file, off_t size) {
  std::array<char, 4096> piece;
  for (off_t end = size; end > 0;) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(piece.size()));
    const ssize_t got = ::pread(file, piece.data(), static_cast<size_t>(end - begin), begin);
    if (got <= 0) return size;  // cannot tell: keep everything
    for (ssize_t i = got - 1; i >= 0; --i) {
      if (piece[static_cast<size_t>(i)] == '\n') return begin + i + 1;
    }
    end = begin;
  }
  return 0;
}

// A last line without its end goes. Returns 0 or the error's number.
int cut_torn_line(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  const off_t end = end_of_last_line(file, status.st_size);
  return end < status.st_size && ::ftruncate(file, end) != 0 ? errno : 0;
}

constexpr int kLooksForAWriter = 40, kLookMilliseconds = 50;  // two seconds

bool is_pipe(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && S_ISFIFO(status.st_mode);
}

}  // namespace

ReadResult try_read_file(const std::string& path, int64_t most_bytes) {
  if (path.find('\0') != std::string::npos) return {"", "the path contains a NUL byte"};
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe might never open
  if (file.number < 0) return {"", reason(errno)};
  struct stat status {};
  if (::fstat(file.number, &status) != 0) return {"", reason(errno)};
  if (S_ISDIR(status.st_mode)) return {"", "it is a folder"};
  // Files of /proc and pipes have size 0: read until the end, whatever the size says.
  std::string text;
  std::array<char, 1 << 16> piece;
  struct pollfd ready {
    file.number, POLLIN, 0
  };
  for (int looks = 0;;) {
    const ssize_t got = ::read(file.number, piece.data(), piece.size());
    if (got < 0 && errno == EAGAIN) ::poll(&ready, 1, -1);  // it has a writer, who takes time
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return {"", reason(errno)};
    if (got == 0 && text.empty() && S_ISFIFO(status.st_mode)) {
      if (++looks > kLooksForAWriter) return {"", "it is a pipe without a writer"};
      ::poll(nullptr, 0, kLookMilliseconds);
      continue;
    }
    if (got == 0) return {std::move(text), ""};
    text.append(piece.data(), static_cast<size_t>(got));
    if (static_cast<int64_t>(text.size()) > most_bytes) {
      return {"", fmt::format("it is larger than {}", human_bytes(static_cast<double>(most_bytes)))};
    }
  }
}

std::string read_file(const std::string& path, int64_t most_bytes) {
  ReadResult result = try_read_file(path, most_bytes);
  if (!result.problem.empty()) throw IoError(801, fmt::format("{} cannot be read: {}", path, result.problem));
  return std::move(result.text);
}

namespace {

// A device, or whatever /dev/stdout is: a rename would put a file in its place. A pipe of any other name is
// not waited for.
bool is_stream(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  const bool open_already = path.starts_with("/dev/") || path.starts_with("/proc/");
  return S_ISCHR(status.st_mode) || (S_ISFIFO(status.st_mode) && open_already);
}

}  // namespace

void write_file_durable(const std::string& path, std::string_view text) {
  if (is_stream(path)) {
    const Descriptor stream(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    const int failed = stream.number < 0 ? errno : write_all(stream.number, text);
    if (failed != 0) refuse_write(path, failed);
    return;
  }
  const std::string beside = fmt::format("{}.{}.tmp", path, ::getpid());
  int error = 0;
  {
    const Descriptor file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.number < 0) refuse_write(path, errno);
    error = write_all(file.number, text);
    if (error == 0 && ::fsync(file.number) != 0) error = errno;
  }
  if (error == 0 && ::rename(beside.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(beside.c_str());
    refuse_write(path, error);
  }
  // The rename is in the folder: without this a power cut can undo it. Some file systems refuse; fine.
  const Descriptor folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number >= 0) ::fsync(folder.number);
}

void make_folders(const std::string& path) {
  std::filesystem::path so_far;
  for (const std::filesystem::path& part : std::filesystem::path(path)) {
    so_far /= part;
    if (::mkdir(so_far.c_str(), 0755) == 0) continue;
    const int error = errno;
    struct stat status {};
    const bool exists = ::stat(so_far.c_str(), &status) == 0;
    if (exists && S_ISDIR(status.st_mode)) continue;
    const std::string why = exists ? "a file with that name exists" : reason(error);
    throw IoError(803, fmt::format("cannot create folder {}: {}", so_far.string(), why));
  }
}

LineWriter::LineWriter(std::string path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) refuse_write(path_, errno);
  if (is_pipe(file_)) {  // it would take some lines, and then wait for a reader
    ::close(file_);
    refuse_write(path_, "it is a pipe, not a file");
  }
  if (const int error = cut_torn_line(file_)) {
    ::close(file_);
    refuse_write(path_, error);
  }
}

LineWriter::~LineWriter() {
  if (file_ >= 0) ::close(file_);
}

void LineWriter::write(std::string_view line) {
  std::string whole(line);
  whole += '\n';
  const int error = write_all(file_, whole);
  if (error == 0) return;
  cut_torn_line(file_);  // so that who tries again does not go on in the middle of it
  refuse_write(path_, error);
}

FolderLock::FolderLock(const std::string& folder, const char* name) {
  const std::string path = folder + "/" + name;
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  // A folder that can only be read, such as a finished run's that was put away, can still be locked.
  if (file_ < 0 && (errno == EACCES || errno == EROFS)) file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) refuse_write(path, errno);
  if (::flock(file_, LOCK_EX | LOCK_NB) == 0) {
    const std::string holder = fmt::format("process {} on {}\n", ::getpid(), host_name());
    // Only for the error of the next one; the lock itself does not depend on it.
    if (::ftruncate(file_, 0) == 0) write_all(file_, holder);
    return;
  }
  const int error = errno;
  ::close(file_);
  if (error != EWOULDBLOCK) throw IoError(802, fmt::format("{} cannot be locked: {}", path, reason(error)));
  const ReadResult read = try_read_file(path, 4096);
  const std::string_view holder = trimmed(read.text);
  throw ConfigError(804, fmt::format("{} is in use by {}; wait for it, stop it, or choose another run.name",
                                     folder, holder.empty() ? "another process" : cut_to_width(holder, 200)));
}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == 0) return "localhost";
  return name.data();
}

}  // namespace lockstep::base
