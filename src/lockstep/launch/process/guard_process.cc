// The guard's own process: one loop over the launcher's requests, the ends of children, and the clock.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/launch/process/descendants.h"
#include "lockstep/launch/process/guard_message.h"
#include "lockstep/launch/process/process.h"
#include "lockstep/launch/process/record.h"

namespace lockstep::launch {

namespace {

constexpr int kTickMs = 40;  // between looks at /proc while ending

// Folders to remove at the end, where the guard and its warden both see them: one after the other, each with
// its zero byte.
struct Folders {
  static constexpr size_t kBytes = size_t{1} << 16;
  size_t used = 0;
  char names[kBytes - sizeof(size_t)];

  static Folders* shared() {
    void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : new (memory) Folders;
  }
  void add(const std::string& name) {
    if (used + name.size() + 1 > sizeof names) return;
    std::memcpy(names + used, name.c_str(), name.size() + 1);
    used += name.size() + 1;
  }
  void remove_all() const {
    for (size_t at = 0; at < used; at += std::strlen(names + at) + 1) {
      std::error_code ignored;
      std::filesystem::remove_all(names + at, ignored);
    }
  }
};

class GuardProcess {
 public:
  GuardProcess(int socket, int64_t grace_ms, Folders* folders)
      : socket_(socket), grace_ms_(grace_ms), folders_(folders) {}
  [[noreturn]] void run();

 private:
  void serve();
  void start(const Request& request, const std::vector<int>& descriptors);
  void tell_started(pid_t pid, int error);
  void reap();
  void begin_end(int64_t grace_ms);
  void go_on_ending();
  void tell(const Report& report) { out_.push_back(report); }
  void flush();

  int socket_, signals_ = -1;
  int64_t grace_ms_;
  bool launcher_gone_ = false, ending_ = false;
  int64_t deadline_ns_ = 0;
  std::set<pid_t> ranks_;  // that were started here and have not been reaped
  std::set<pid_t> asked_;  // have been sent SIGTERM in this ending
  std::deque<Report> out_;
  Folders* folders_;  // null: nowhere to note them
};

void GuardProcess::run() {
  socket_ = let_go(socket_, "lockstep-guard");
  become_subreaper();
  Report here;
  here.kind = Tell::here, here.pid = ::getpid();
  tell(here);
  flush();
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  signals_ = ::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  for (;;) {
    pollfd sources[] = {{socket_, static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT)), 0},
                        {signals_, POLLIN, 0}};
    if (launcher_gone_) sources[0].fd = -1;
    ::poll(sources, 2, ending_ ? kTickMs : -1);
    signalfd_siginfo information;
    while (::read(signals_, &information, sizeof information) > 0) {
    }
    if (sources[0].revents & (POLLIN | POLLHUP | POLLERR)) serve();
    reap();
    if (ending_) go_on_ending();
    if (!launcher_gone_) flush();
  }
}

void GuardProcess::serve() {
  Request request;
  const Received received = receive_record(socket_, &request, sizeof request, MSG_DONTWAIT);
  if (received.bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received.bytes <= 0) {
    launcher_gone_ = true;
    begin_end(grace_ms_);
    return;
  }
  const std::vector<int>& descriptors = received.descriptors;
  if (request.kind == Ask::start) {
    received.complete ? start(request, descriptors) : tell_started(-1, EMFILE);
  }
  if (request.kind == Ask::remove_at_end && received.complete && folders_ != nullptr)
    folders_->add(read_letter(descriptors[0]));
  if (request.kind == Ask::signal) ::kill(request.pid, request.signal);
  if (request.kind == Ask::end_all) begin_end(request.grace_ms);
  for (const int descriptor : descriptors) ::close(descriptor);
}

void GuardProcess::start(const Request& request, const std::vector<int>& descriptors) {
  Process process = unpack(read_letter(descriptors[0]));
  int* const streams[] = {&process.in, &process.out, &process.err, &process.keep, &process.memory};
  size_t next = 1;
  for (int k = 0; k < 5; ++k) {
    if ((request.descriptors & (1u << k)) && next < descriptors.size()) *streams[k] = descriptors[next++];
  }
  const pid_t guard = ::getpid(), pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (::getppid() != guard) ::_exit(126);  // it died before this line
    exec_process(process);
  }
  if (pid > 0) ranks_.insert(pid);
  tell_started(pid, pid < 0 ? errno : 0);
}

void GuardProcess::tell_started(pid_t pid, int error) {
  Report report;
  report.kind = Tell::started, report.pid = pid, report.error = error;
  tell(report);
}

void GuardProcess::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    ranks_.erase(pid);
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    Report report;
    report.kind = Tell::ended, report.pid = pid, report.status = status;
    report.unix_micros = now.tv_sec * int64_t{1000000} + now.tv_nsec / 1000;
    tell(report);
  }
}

void GuardProcess::begin_end(int64_t grace_ms) {
  const int64_t deadline = base::monotonic_ns() + grace_ms * 1000000;
  if (!ending_) asked_.clear();
  deadline_ns_ = ending_ ? std::min(deadline_ns_, deadline) : deadline;
  ending_ = true;
}

void GuardProcess::go_on_ending() {
  std::vector<pid_t> left = descendants_of(::getpid());
  if (left.empty()) left.assign(ranks_.begin(), ranks_.end());  // where /proc does not show them
  const bool insist = base::monotonic_ns() >= deadline_ns_;
  for (const pid_t one : left) {
    if (insist) {
      ::kill(one, SIGKILL);
    } else if (asked_.insert(one).second) {
      ::kill(one, SIGTERM);
      ::kill(one, SIGCONT);  // a stopped process cannot end by itself
    }
  }
  siginfo_t information{};
  const bool no_children =
      ::waitid(P_ALL, 0, &information, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
  // Where /proc hides processes, the absence of children is what we know.
  if (!left.empty() || !no_children) return;
  ending_ = false;
  if (launcher_gone_) {
    if (folders_ != nullptr) folders_->remove_all();
    ::_exit(0);
  }
  Report report;
  report.kind = Tell::all_gone;
  tell(report);
}

void GuardProcess::flush() {
  while (!out_.empty()) {
    if (::send(socket_, &out_.front(), sizeof(Report), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return;
    out_.pop_front();
  }
}

// Waits for the guard's end. If it was killed, perhaps together with the launcher, its orphans are this
// process's, which nobody has a reason to know.
[[noreturn]] void run_warden(int socket, pid_t guard, const Folders* folders) {
  ::close(let_go(socket, "lockstep-warden"));
  int status = 0;
  while (::waitpid(guard, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) ::_exit(0);
  while (signal_descendants(SIGKILL) > 0) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    ::usleep(10000);
  }
  if (folders != nullptr) folders->remove_all();
  ::_exit(0);
}

}  // namespace

void run_guard(int socket, int64_t grace_ms) {
  try {
    Folders* const folders = Folders::shared();
    become_subreaper();
    const pid_t guard = ::fork();  // where no more processes are allowed, it does without a warden
    if (guard > 0) run_warden(socket, guard, folders);
    GuardProcess(socket, grace_ms, folders).run();
  } catch (...) {
    ::_exit(1);  // its children die with it, and the launcher ends the rest
  }
}

}  // namespace lockstep::launch
