#include "lockstep/launch/process/disk_process.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <span>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/launch/process/process.h"
#include "lockstep/launch/process/record.h"

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

// False: the launcher has gone.
bool serve(int socket) {
  Request request;
  const Received received = receive_record(socket, &request, sizeof request);
  if (received.bytes < 0 && errno == EINTR) return true;
  const size_t expected = request.has_descriptor ? 2 : 1;
  if (received.bytes != sizeof request || received.descriptors.size() != expected) return false;
  const base::Descriptor words(received.descriptors.front()),
      file(request.has_descriptor ? received.descriptors.back() : -1);
  const DiskCall call{
      .words = unpack_words(read_letter(words.number)), .descriptor = file.number, .caller = socket};
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
  const base::Descriptor words(make_letter(pack_words(call.words)));
  if (words.number < 0) return false;
  const Request request{work, call.descriptor >= 0};
  const int descriptors[] = {words.number, call.descriptor};
  if (!send_record(socket_, &request, sizeof request, std::span(descriptors, request.has_descriptor ? 2 : 1)))
    return false;
  char said[kMostAnswer + 1];
  ssize_t got = 0;
  do got = ::recv(socket_, said, sizeof said, 0);
  while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  answer.assign(said + 1, static_cast<size_t>(got) - 1);
  return true;
}

}  // namespace lockstep::launch
