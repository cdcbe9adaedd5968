#include "lockstep/run/folder/metrics_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"

namespace lockstep::run {

namespace {

using nlohmann::json;

constexpr int64_t kLongestLine = 1 << 16;  // ours are a few hundred bytes

[[noreturn]] void refuse(const std::string& path, int error) {
  throw base::IoError(818, fmt::format("{} cannot be read and truncated to the step the run resumes from: "
                                       "{}; it was not changed: fix its disk or permissions, or move it away",
                                       path, std::strerror(error)));
}

// Whole lines of a file, the last one first.
class LinesBackwards {
 public:
  LinesBackwards(const std::string& path, int file, int64_t size) : path_(path), file_(file) {
    end_ = after_newline(size);  // a torn last line is no line
  }

  struct Line {
    int64_t begin = 0;
    std::string text;  // empty when it is longer than any of ours
  };
  std::optional<Line> next() {
    if (end_ == 0) return std::nullopt;
    Line line{after_newline(end_ - 1), ""};
    const int64_t bytes = end_ - 1 - line.begin;
    if (bytes <= kLongestLine) {
      line.text.resize(static_cast<size_t>(bytes));
      read(line.text.data(), bytes, line.begin);
    }
    end_ = line.begin;
    return line;
  }

 private:
  // Where the line that holds the byte before `end` begins.
  int64_t after_newline(int64_t end) {
    while (end > 0) {
      if (end <= piece_begin_ || end > piece_begin_ + piece_bytes_) load(end);
      const void* found = ::memrchr(piece_.data(), '\n', static_cast<size_t>(end - piece_begin_));
      if (found != nullptr) return piece_begin_ + (static_cast<const char*>(found) - piece_.data()) + 1;
      end = piece_begin_;
    }
    return 0;
  }
  void load(int64_t end) {
    piece_begin_ = std::max<int64_t>(0, end - static_cast<int64_t>(piece_.size()));
    piece_bytes_ = end - piece_begin_;
    read(piece_.data(), piece_bytes_, piece_begin_);
  }
  void read(char* to, int64_t bytes, int64_t at) const {
    while (bytes > 0) {
      const ssize_t got = ::pread(file_, to, static_cast<size_t>(bytes), at);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) refuse(path_, got < 0 ? errno : EIO);
      to += got, at += got, bytes -= got;
    }
  }

  const std::string& path_;
  int file_;
  int64_t end_ = 0, piece_begin_ = 0, piece_bytes_ = 0;
  std::array<char, 1 << 16> piece_;
};

// Nothing for a line that tells of no step.
std::optional<int64_t> step_of(const json& line) {
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) return std::nullopt;
  return line["step"].get<int64_t>();
}

}  // namespace

int64_t cut_lines_after(const std::string& path, int64_t step) {
  const base::Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (file.number < 0 && errno == ENOENT) return 0;
  struct stat status {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0) refuse(path, errno);
  if (!S_ISREG(status.st_mode)) return 0;
  LinesBackwards lines(path, file.number, status.st_size);
  int64_t cut = status.st_size, last = 0;
  while (const auto line = lines.next()) {
    const json parsed = json::parse(line->text, nullptr, false);
    const std::optional<int64_t> of = step_of(parsed);
    if (!of) continue;
    if (*of > step) cut = line->begin;
    if (*of > step || !parsed.contains("loss")) continue;
    last = *of;
    break;
  }
  if (cut < status.st_size && ::ftruncate(file.number, cut) != 0) refuse(path, errno);
  return last;
}

std::string last_link(const std::string& path) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode)) return "";
  LinesBackwards lines(path, file.number, status.st_size);
  while (const auto line = lines.next()) {
    const json parsed = json::parse(line->text, nullptr, false);
    if (parsed.is_object() && parsed.contains("chain") && parsed["chain"].is_string())
      return parsed["chain"].get<std::string>();
  }
  return "";
}

}  // namespace lockstep::run
