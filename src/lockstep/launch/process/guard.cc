#include "lockstep/launch/process/guard.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/process/descendants.h"
#include "lockstep/launch/process/guard_message.h"
#include "lockstep/launch/process/record.h"

namespace lockstep::launch {

namespace {

[[noreturn]] void fail(const char* what) {
  throw base::IoError(532,
                      fmt::format("{}: {}; check the limits with `ulimit -a`", what, std::strerror(errno)));
}

void send(int socket, const Request& request, const std::vector<int>& descriptors) {
  send_record(socket, &request, sizeof request, descriptors);  // a guard that has gone: take() says so
}

int letter(const std::string& bytes) {
  const int file = make_letter(bytes);
  if (file < 0) fail("cannot tell the guard what to start");
  return file;
}

}  // namespace

Guard::Guard(Duration grace) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) fail("cannot create a socket");
  before_ = descendants_of(::getpid());
  become_subreaper();
  warden_ = ::fork();
  if (warden_ == 0) {
    ::close(pair[0]);
    run_guard(pair[1], grace.count());
  }
  ::close(pair[1]);
  socket_ = pair[0];
  if (warden_ < 0) {
    ::close(socket_);
    fail("cannot start the guard process");
  }
  while (pid_ == 0 && receive(true)) {
  }
}

Guard::~Guard() {
  if (socket_ < 0) return;
  ::close(socket_);
  if (left_behind_) return;
  ::waitpid(warden_, nullptr, 0);
  // Nothing is left unless the guard was killed this very moment.
  while (signal_descendants(SIGKILL, before_) > 0) ::usleep(10000);
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

pid_t Guard::start(const Process& process) {
  const base::Descriptor packed(letter(pack(process)));
  Request request;
  std::vector<int> descriptors = {packed.number};
  const int streams[] = {process.in, process.out, process.err, process.keep, process.memory};
  for (int k = 0; k < 5; ++k) {
    if (streams[k] < 0) continue;
    request.descriptors |= 1u << k;
    descriptors.push_back(streams[k]);
  }
  send(socket_, request, descriptors);
  has_started_ = false;
  while (!has_started_ && receive(true)) {
  }
  if (!has_started_)
    throw base::IoError(532, "the launcher's guard process was killed; no rank is left running");
  if (started_ < 0) {
    errno = start_error_;
    fail("cannot start a rank");
  }
  return started_;
}

void Guard::signal(pid_t pid, int number) {
  Request request;
  request.kind = Ask::signal, request.pid = pid, request.signal = number;
  send(socket_, request, {});
}

void Guard::end_all(Duration grace) {
  Request request;
  request.kind = Ask::end_all, request.grace_ms = grace.count();
  send(socket_, request, {});
}

void Guard::leave_behind() { left_behind_ = true; }

void Guard::remove_at_end(const std::string& folder) {
  const base::Descriptor name(letter(folder));
  Request request;
  request.kind = Ask::remove_at_end;
  send(socket_, request, {name.number});
}

// One report into news_. False: none there (or, when waiting, none will come).
bool Guard::receive(bool wait) {
  if (news_.lost) return false;
  Report report;
  ssize_t got = 0;
  do got = ::recv(socket_, &report, sizeof report, wait ? 0 : MSG_DONTWAIT);
  while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (got != sizeof report) {
    lose();
    return false;
  }
  if (report.kind == Tell::here) pid_ = report.pid;
  if (report.kind == Tell::started) started_ = report.pid, start_error_ = report.error, has_started_ = true;
  if (report.kind == Tell::ended) news_.ended.push_back({report.pid, report.status, report.unix_micros});
  if (report.kind == Tell::all_gone) news_.all_gone = true;
  return true;
}

void Guard::lose() {
  news_.lost = true;
  ::waitpid(warden_, nullptr, 0);
  while (signal_descendants(SIGKILL, before_) > 0) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    ::usleep(10000);
  }
}

GuardNews Guard::take() {
  while (receive(false)) {
  }
  GuardNews news = std::move(news_);
  news_ = {};
  news_.lost = news.lost;
  return news;
}

}  // namespace lockstep::launch
