#include "lockstep/launch/tasks.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/descendants.h"
#include "lockstep/launch/process.h"
#include "lockstep/launch/round_state.h"

namespace lockstep::launch {

std::string task_queue(const std::string& node) { return "tasks/" + node; }
std::string ending_key(int rank) { return fmt::format("ended/{}", rank); }

JoinedTasks::JoinedTasks(int expected, std::string node, int node_number, std::unique_ptr<comm::Store> store)
    : expected_(expected), node_number_(node_number), node_(std::move(node)), store_(std::move(store)) {}

JoinedTasks::~JoinedTasks() {
  for (const Task& task : tasks_) {
    if (task.watch >= 0) ::close(task.watch);
  }
}

void JoinedTasks::look() {
  while (static_cast<int>(tasks_.size()) < expected_) {
    const std::optional<std::string> text = store_->pop(task_queue(node_), Duration(0));
    if (!text) break;
    const nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
    if (!json.is_object()) continue;
    Task task;
    task.rank = json.value("rank", 0), task.pid = json.value("pid", 0), task.host = json.value("host", ""),
    task.local_rank = json.value("local_rank", 0);
    if (task.pid > 0) task.watch = static_cast<int>(::syscall(SYS_pidfd_open, task.pid, 0));
    task.joined_at = std::chrono::steady_clock::now();
    tasks_.push_back(task);
  }
  for (Task& task : tasks_) {
    if (task.ended) continue;
    pollfd gone{task.watch, POLLIN, 0};
    const bool seen = task.watch >= 0 && ::poll(&gone, 1, 0) == 1;
    // Its last word comes before its end; where nothing can be watched, the word is all there is.
    const std::optional<std::string> word =
        seen || task.watch < 0 ? store_->try_get(ending_key(task.rank)) : std::nullopt;
    task.ended = seen || word;
    task.said = word.has_value();
    task.status = word ? std::atoi(word->c_str()) : SIGKILL;
  }
}

void JoinedTasks::add_sources(std::vector<pollfd>& sources) const {
  for (const Task& task : tasks_) {
    if (task.watch >= 0 && !task.ended) sources.push_back({task.watch, POLLIN, 0});
  }
}

std::vector<Failure> JoinedTasks::new_failures() {
  std::vector<Failure> failures;
  for (Task& task : tasks_) {
    if (!task.ended || task.told || task.status == 0) continue;
    task.told = true;
    Failure failure;
    failure.rank = task.rank, failure.local_rank = task.local_rank, failure.node = std::max(0, node_number_),
    failure.host = task.host, failure.pid = task.pid;
    failure.code = exit_code_of(task.status);
    failure.ending = task.said ? describe_ending(task.status) : "its task was killed";
    failure.unix_micros = std::chrono::duration_cast<std::chrono::microseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
    failure.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - task.joined_at).count();
    failures.push_back(failure);
  }
  return failures;
}

void JoinedTasks::signal(int number) {
  for (const Task& task : tasks_) {
    if (!task.ended && task.watch >= 0) ::syscall(SYS_pidfd_send_signal, task.watch, number, nullptr, 0);
  }
}

bool JoinedTasks::all_ended() const {
  const auto ended = std::count_if(tasks_.begin(), tasks_.end(), [](const Task& task) { return task.ended; });
  return ended == expected_;
}

bool JoinedTasks::none_runs() const {
  return std::all_of(tasks_.begin(), tasks_.end(),
                     [](const Task& task) { return task.ended || task.watch < 0; });
}

int JoinedTasks::worst_code() const {
  int worst = 0;
  for (const Task& task : tasks_) {
    worst = worse_code(worst, exit_code_of(task.status));
  }
  return worst;
}

namespace {

void end_descendants(Duration grace) {
  const int64_t deadline = base::monotonic_ns() + grace.count() * 1000000;
  for (int signal = SIGTERM; signal_descendants(signal) > 0;) {
    std::this_thread::sleep_for(Duration(20));
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    signal = base::monotonic_ns() < deadline ? 0 : SIGKILL;
  }
}

// Waits for the rank and passes signals on. A scheduler may have sent them to the rank as well, and a second
// SIGINT would end it without saving: what is passed on is SIGTERM, of which a rank may hear any number.
int wait_for_rank(pid_t rank, const sigset_t& signals) {
  for (;;) {
    int status = 0;
    if (::waitpid(rank, &status, WNOHANG) == rank) return status;
    const timespec pause{0, 200'000'000};
    const int number = ::sigtimedwait(&signals, nullptr, &pause);
    if (number > 0 && number != SIGCHLD) ::kill(rank, number == SIGINT ? SIGTERM : number);
  }
}

}  // namespace

int split_task(Duration grace, const std::function<void(int status)>& report) {
  sigset_t signals, before;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD})
    sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, &before);
  become_subreaper();
  std::fflush(nullptr);  // or both would write what is buffered
  const pid_t parent = ::getpid(), rank = ::fork();
  if (rank < 0)
    throw base::IoError(532, "a rank's process cannot be started: `ulimit -u` shows the limit of processes");
  if (rank == 0) {
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (::getppid() != parent) ::_exit(1);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return 0;
  }
  const int status = wait_for_rank(rank, signals);
  end_descendants(grace);
  try {
    report(status);
  } catch (const base::Error&) {
    // The store has gone: so has whoever wanted to know.
  }
  return 1 + exit_code_of(status);
}

}  // namespace lockstep::launch
