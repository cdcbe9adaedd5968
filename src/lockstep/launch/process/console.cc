#include "lockstep/launch/process/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::launch {

namespace {

// O_NONBLOCK belongs to the open file, which the shell and its other programs share: we need one of our own.
// Only what has a reader is opened again; a file would lose its place.
int reopen(int descriptor) {
  struct stat kind {};
  if (::fstat(descriptor, &kind) != 0) return -1;
  if (!S_ISFIFO(kind.st_mode) && !::isatty(descriptor)) return -1;
  return ::open(fmt::format("/proc/self/fd/{}", descriptor).c_str(),
                O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

Console::Console(int descriptor) : given_(descriptor), writer_(reopen(descriptor)) {
  never_blocks_ = writer_ >= 0;
  if (!never_blocks_) writer_ = given_;
}

Console::~Console() {
  if (writer_ != given_) ::close(writer_);
}

void Console::add(const char* bytes, size_t count) {
  waiting_.append(bytes, count);
  flush();
}

void Console::flush() {
  size_t done = 0;
  while (done < waiting_.size()) {
    pollfd ready{writer_, POLLOUT, 0};
    if (!never_blocks_ && ::poll(&ready, 1, 0) == 0) break;
    // As much as any pipe takes without waiting, once it says that it takes something.
    const size_t most = never_blocks_ ? waiting_.size() - done : size_t{PIPE_BUF};
    const ssize_t written = ::write(writer_, waiting_.data() + done, std::min(most, waiting_.size() - done));
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      done = waiting_.size();
    }
  }
  waiting_.erase(0, done);
}

}  // namespace lockstep::launch
