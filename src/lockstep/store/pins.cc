#include "lockstep/store/pins.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

std::string folder_of(const std::string& cache_folder) { return cache_folder + "/.in-use"; }

[[noreturn]] void refuse(const std::string& path) {
  throw base::IoError(292, fmt::format("{} cannot be written: {}; set LOCKSTEP_OBJECT_CACHE to a folder on a "
                                       "disk with space",
                                       path, std::strerror(errno)));
}

}  // namespace

PinFile::PinFile(const std::string& cache_folder) {
  base::make_folders(folder_of(cache_folder));
  path_ = folder_of(cache_folder) + "/XXXXXX";
  file_ = ::mkostemp(path_.data(), O_CLOEXEC | O_APPEND);
  if (file_ < 0 || ::flock(file_, LOCK_EX) != 0) refuse(path_);
}

PinFile::~PinFile() {
  ::unlink(path_.c_str());
  ::close(file_);
}

void PinFile::add(const std::vector<std::string>& paths) {
  std::string lines;
  for (const std::string& path : paths) lines += path + "\n";
  append(lines);
}

void PinFile::remove(const std::string& path) { append("-" + path + "\n"); }

void PinFile::append(const std::string& lines) {
  for (size_t done = 0; done < lines.size();) {
    const ssize_t wrote = ::write(file_, lines.data() + done, lines.size() - done);
    if (wrote < 0 && errno != EINTR) refuse(path_);
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
}

std::set<std::string> PinFile::in_use(const std::string& cache_folder) {
  std::set<std::string> used;
  std::error_code error;
  for (fs::directory_iterator it(folder_of(cache_folder), error), end; !error && it != end;
       it.increment(error)) {
    const std::string path = it->path().string();
    const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.number < 0) continue;
    if (::flock(file.number, LOCK_EX | LOCK_NB) == 0) {  // its process has ended
      ::unlink(path.c_str());
      continue;
    }
    std::map<std::string, int> times;
    for (const std::string& line : base::split_lines(base::try_read_file(path).text)) {
      if (line.starts_with('-')) {
        --times[line.substr(1)];
      } else {
        ++times[line];
      }
    }
    for (const auto& [copy, count] : times) {
      if (count > 0) used.insert(copy);
    }
  }
  return used;
}

}  // namespace lockstep::store
