#include "lockstep/store/record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnd = ".object";

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kTooYoung = 2;  // seconds

// Whole seconds: a list and a question about one object need not be equally exact.
std::string line_of(const Object& object) {
  return fmt::format("{} {} {}\n", object.size, object.changed_ns / kSecond, object.version);
}

bool is_of(const std::string& line, const Object& object) {
  const std::string begin = fmt::format("{} {} ", object.size, object.changed_ns / kSecond);
  if (!line.starts_with(begin) || !line.ends_with('\n')) return false;
  const std::string version = line.substr(begin.size(), line.size() - begin.size() - 1);
  return version.empty() || object.version.empty() || version == object.version;
}

// One that was written just now may be replaced within the same second, and nobody could tell by its time.
bool is_too_young(const Object& object) {
  return object.changed_ns > 0 && std::time(nullptr) - object.changed_ns / kSecond < kTooYoung;
}

[[noreturn]] void refuse(const std::string& path) {
  throw base::IoError(292, fmt::format("{} cannot be written: {}; check the disk, or set "
                                       "LOCKSTEP_OBJECT_CACHE to another folder",
                                       path, std::strerror(errno)));
}

}  // namespace

std::string Record::path_for(const std::string& copy) {
  const fs::path path(copy);
  return (path.parent_path() / ("." + path.filename().string() + std::string(kEnd))).string();
}

bool Record::is_record(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name.starts_with('.') && name.ends_with(kEnd) && name.size() > kEnd.size() + 1;
}

std::string Record::copy_of(const std::string& record_path) {
  const fs::path path(record_path);
  const std::string name = path.filename().string();
  return (path.parent_path() / name.substr(1, name.size() - 1 - kEnd.size())).string();
}

bool Record::fits(const std::string& copy, const Object& object) {
  struct stat status {};
  return ::stat(copy.c_str(), &status) == 0 && status.st_size == object.size &&
         is_of(base::try_read_file(path_for(copy), 4096).text, object);
}

Record::Record(const std::string& copy) : path_(path_for(copy)) {
  for (;;) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file_ < 0) refuse(path_);
    while (::flock(file_, LOCK_EX) != 0) {
      if (errno != EINTR) refuse(path_);
    }
    // Who made room may have removed the file that was waited for.
    struct stat held {
    }, there{};
    if (::fstat(file_, &held) == 0 && ::stat(path_.c_str(), &there) == 0 && held.st_ino == there.st_ino)
      return;
    ::close(file_);
  }
}

Record::~Record() { ::close(file_); }

void Record::clear() {
  if (::ftruncate(file_, 0) != 0) refuse(path_);
}

void Record::write(const Object& object) {
  clear();
  if (is_too_young(object)) return;  // the next one fetches it again
  const std::string line = line_of(object);
  if (::pwrite(file_, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) refuse(path_);
}

void Record::touch() { ::futimens(file_, nullptr); }

}  // namespace lockstep::store
