#include "lockstep/launch/process/disk_process.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/launch/process/process.h"

namespace lockstep::launch {

namespace {

constexpr size_t kMostAnswer = 4096;

struct Request {
  DiskWork work = nullptr;
  bool has_descriptor = false;  // behind that of the words
};

std::string answer_to(const Request& request, const DiskCall& call) {
  try {
    return request.work(call);
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string read_words(int file) {
  struct stat size {};
  ::fstat(file, &size);
  std::string bytes(static_cast<size_t>(size.st_size), '\0');
  [[maybe_unused]] const ssize_t got = ::pread(file, bytes.data(), bytes.size(), 0);
  return bytes;
}

// False: the launcher has gone.
bool serve(int socket) {
  Request request;
  iovec part{&request, sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == EINTR) return true;
  if (got != sizeof request) return false;
  int descriptors[2] = {-1, -1};
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || (message.msg_flags & MSG_CTRUNC)) return false;
  std::memcpy(descriptors, CMSG_DATA(header),
              std::min(sizeof descriptors, static_cast<size_t>(header->cmsg_len - CMSG_LEN(0))));
  const base::Descriptor words(descriptors[0]), file(request.has_descriptor ? descriptors[1] : -1);
  const DiskCall call{
      .words = unpack_words(read_words(words.number)), .descriptor = file.number, .caller = socket};
  // One byte in front: an empty record would look like the end.
  const std::string answer = "=" + answer_to(request, call).substr(0, kMostAnswer);
  return ::send(socket, answer.data(), answer.size(), MSG_NOSIGNAL) > 0;
}

}  // namespace

bool DiskCall::abandoned() const {
  pollfd launcher{caller, 0, 0};
  return caller >= 0 && ::poll(&launcher, 1, 0) > 0 && (launcher.revents & (POLLHUP | POLLERR)) != 0;
}

DiskProcess::DiskProcess() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return;
  pid_ = ::fork();
  if (pid_ == 0) {
    const int launcher = let_go(pair[1], "lockstep-disk");
    while (serve(launcher)) {
    }
    ::_exit(0);
  }
  ::close(pair[1]);
  pid_ > 0 ? static_cast<void>(socket_ = pair[0]) : static_cast<void>(::close(pair[0]));
}

DiskProcess::~DiskProcess() {
  if (socket_ >= 0) ::close(socket_);
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
}

std::string DiskProcess::call(DiskWork work, const DiskCall& call) {
  const std::lock_guard lock(mutex_);
  std::string answer;
  if (socket_ >= 0 && ask(work, call, answer)) return answer;
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  return answer_to({work, false}, call);
}

// False: it could not be asked, or has gone.
bool DiskProcess::ask(DiskWork work, const DiskCall& call, std::string& answer) const {
  const std::string bytes = pack_words(call.words);
  const base::Descriptor words(::memfd_create("lockstep-disk", MFD_CLOEXEC));
  if (words.number < 0 ||
      ::write(words.number, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    return false;
  Request request{work, call.descriptor >= 0};
  const int descriptors[2] = {words.number, call.descriptor};
  const size_t count = request.has_descriptor ? 2 : 1;
  iovec part{&request, sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
  ssize_t got = 0;
  do got = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
  while (got < 0 && errno == EINTR);
  if (got < 0) return false;
  char said[kMostAnswer + 1];
  do got = ::recv(socket_, said, sizeof said, 0);
  while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  answer.assign(said + 1, static_cast<size_t>(got) - 1);
  return true;
}

}  // namespace lockstep::launch
