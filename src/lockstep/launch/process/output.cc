#include "lockstep/launch/process/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {

namespace {

// A log that cannot be written (the disk is full) must not end the ranks: the rest is dropped.
void write_all(int file, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t written = ::write(file, bytes, count);
    if (written > 0) bytes += written, count -= static_cast<size_t>(written);
    if (written < 0 && errno != EINTR) return;
  }
}

int open_log(const std::string& path) {
  base::make_folders(std::filesystem::path(path).parent_path().string());
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) throw base::IoError(802, fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
  return file;
}

// A pseudo-terminal as wide as the console, which changes no byte. False: none to be had.
bool make_terminal(int console, int& read_end, int& write_end) {
  read_end = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (read_end < 0) return false;
  char name[128];
  write_end = -1;
  if (::grantpt(read_end) == 0 && ::unlockpt(read_end) == 0 &&
      ::ptsname_r(read_end, name, sizeof name) == 0) {
    write_end = ::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  }
  if (write_end < 0) {
    ::close(read_end);
    return false;
  }
  termios modes{};
  ::tcgetattr(write_end, &modes);
  ::cfmakeraw(&modes);
  ::tcsetattr(write_end, TCSANOW, &modes);
  winsize size{};
  if (::ioctl(console, TIOCGWINSZ, &size) == 0) ::ioctl(write_end, TIOCSWINSZ, &size);
  return true;
}

}  // namespace

RankStream::RankStream(StreamPlan plan, Console& console, DiskWriter* disk)
    : plan_(std::move(plan)), console_(console), disk_(disk) {
  const int file = plan_.file.empty() ? -1 : open_log(plan_.file);
  if (!plan_.console && file >= 0) {
    child_ = file;
    return;
  }
  if (file >= 0) file_ = std::make_shared<const base::Descriptor>(file);
  terminal_ = plan_.console && plan_.prefix.empty() && ::isatty(console_.terminal()) &&
              make_terminal(console_.terminal(), read_, child_);
  if (!terminal_) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) {
      throw base::IoError(
          532, fmt::format("cannot create a pipe to a rank: {}; check `ulimit -n`", std::strerror(errno)));
    }
    read_ = pipe[0], child_ = pipe[1];
  }
  ::fcntl(read_, F_SETFL, O_NONBLOCK);
}

RankStream::~RankStream() {
  for (const int one : {child_, read_}) {
    if (one >= 0) ::close(one);
  }
}

void RankStream::close_child_end() {
  if (child_ >= 0) ::close(std::exchange(child_, -1));
}

int RankStream::descriptor() const {
  const bool waits = (plan_.console && console_.full()) || (file_ && disk_ != nullptr && disk_->full());
  return waits ? -1 : read_;
}

void RankStream::pump() { read_some(true); }
void RankStream::drain() { read_some(false); }

void RankStream::read_some(bool patient) {
  char bytes[16384];
  for (int turns = 0; turns < 64; ++turns) {  // a rank that never pauses must not hold up the others
    if ((patient ? descriptor() : read_) < 0) return;
    const ssize_t got = ::read(read_, bytes, sizeof bytes);
    if (got > 0) {
      pass_on(bytes, static_cast<size_t>(got));
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      return;
    } else {  // the end; a terminal says EIO
      ::close(std::exchange(read_, -1));
    }
  }
}

void RankStream::finish() {
  drain();
  if (read_ >= 0) ::close(std::exchange(read_, -1));
  if (!line_.empty()) show_line();
  if (!seen_.empty()) log_line();
}

void RankStream::pass_on(const char* bytes, size_t count) {
  if (file_ && terminal_) log_as_seen(bytes, count);
  if (file_ && !terminal_) write_log(bytes, count);
  tail_.append(bytes, count);
  if (tail_.size() > 2 * kMostTail) tail_.erase(0, tail_.size() - kMostTail);
  if (plan_.console) show(bytes, count);
}

void RankStream::write_log(const char* bytes, size_t count) {
  if (disk_ == nullptr) return write_all(file_->number, bytes, count);
  const DiskWork append = [](const DiskCall& call) -> std::string {
    write_all(call.descriptor, call.words[0].data(), call.words[0].size());
    return "";
  };
  disk_->post(append, {std::string(bytes, count)}, file_);
}

// A progress line that is rewritten twenty times a second would fill the disk in a long run.
void RankStream::log_as_seen(const char* bytes, size_t count) {
  for (size_t k = 0; k < count; ++k) {
    if (bytes[k] == '\n' || seen_.size() >= kMostLine) log_line();
    if (bytes[k] == '\n') continue;
    if (bytes[k] == '\r') {
      rewinds_ = true;
      continue;
    }
    if (std::exchange(rewinds_, false)) seen_.clear();
    seen_ += bytes[k];
  }
}

void RankStream::log_line() {
  const std::string whole = without_escapes(seen_) + "\n";
  seen_.clear(), rewinds_ = false;
  if (file_) write_log(whole.data(), whole.size());
}

void RankStream::show(const char* bytes, size_t count) {
  if (plan_.prefix.empty()) return console_.add(bytes, count);
  for (size_t k = 0; k < count; ++k) {
    if (bytes[k] != '\n') line_ += bytes[k];
    if (bytes[k] == '\n' || line_.size() >= kMostLine) show_line();
  }
}

void RankStream::show_line() {
  const std::string whole = plan_.prefix + line_ + "\n";
  line_.clear();
  console_.add(whole.data(), whole.size());  // at once: lines of several ranks do not mix
}

std::vector<std::string> RankStream::last_lines(size_t count) const {
  return tail_.empty() && !plan_.file.empty() ? last_lines_of_file(plan_.file, count)
                                              : last_lines_of(tail_, count);
}

std::string without_escapes(const std::string& line) {
  std::string kept;
  for (size_t k = 0; k < line.size(); ++k) {
    if (line[k] != '\033') {
      kept += line[k];
    } else if (k + 1 < line.size() && line[k + 1] == '[') {  // parameters, then one letter
      for (k += 2; k < line.size() && (line[k] < '@' || line[k] > '~');) ++k;
    }
  }
  return kept;
}

std::vector<std::string> last_lines_of_file(const std::string& path, size_t count) {
  std::string text;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const off_t size = ::lseek(file, 0, SEEK_END);
  const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(kMostTail));
  text.resize(static_cast<size_t>(size - begin));
  const ssize_t got = ::pread(file, text.data(), text.size(), begin);
  ::close(file);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return last_lines_of(text, count);
}

std::vector<std::string> last_lines_of(const std::string& text, size_t count) {
  std::vector<std::string> kept;
  for (std::string& line : base::split_lines(text)) {
    // A progress bar rewrites its line: what stands at the end is what was seen.
    if (const size_t back = line.find_last_not_of("\r"); back != std::string::npos) line.resize(back + 1);
    if (const size_t rewritten = line.rfind('\r'); rewritten != std::string::npos)
      line.erase(0, rewritten + 1);
    std::erase_if(line,
                  [](char letter) { return static_cast<unsigned char>(letter) < 32 && letter != '\t'; });
    if (!base::trimmed(line).empty()) kept.push_back(base::cut_to_width(line, 200));
  }
  if (kept.size() > count) kept.erase(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(count));
  return kept;
}

}  // namespace lockstep::launch
